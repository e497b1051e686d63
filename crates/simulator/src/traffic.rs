//! Seeded webhook traffic with duplicates, reordering and bursts. Pure; no HTTP client.
//!
//! A [`Traffic`] is a plan. Each [`Delivery`] names a lead and its time; event id and body depend only on the lead's
//! number, so duplicates are identical to the byte and a plan of millions stays small.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::rng::SeededRng;

const FIRST_NAMES: [&str; 32] = [
    "Amara",
    "Björn",
    "Chidi",
    "Dolores",
    "Elif",
    "Farah",
    "Goran",
    "Hana",
    "Ines",
    "João",
    "Katarzyna",
    "Lwazi",
    "Mei",
    "Noor",
    "Olga",
    "Pádraig",
    "Quentin",
    "Rosa",
    "Søren",
    "Thandiwe",
    "Uma",
    "Vikram",
    "Wanjiru",
    "Ximena",
    "Yusuf",
    "Zoë",
    "Anders",
    "Beatriz",
    "Cem",
    "Dilnoza",
    "Emeka",
    "Freya",
];
const LAST_NAMES: [&str; 32] = [
    "Abebe",
    "Bianchi",
    "Castillo",
    "Dlamini",
    "Eriksen",
    "Fischer",
    "García",
    "Horvat",
    "Ivanova",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Müller",
    "Nkosi",
    "O'Hara",
    "Petrov",
    "Quispe",
    "Rossi",
    "Sato",
    "Tanaka",
    "Ueda",
    "Van der Berg",
    "Wójcik",
    "Xu",
    "Yılmaz",
    "Zhang",
    "Achterberg",
    "Banerjee",
    "Charles",
    "Dubois",
    "Evans",
    "Fernandes",
];
const COMPANY_WORDS: [&str; 16] = [
    "Harbour",
    "Granite",
    "Juniper",
    "Lantern",
    "Meridian",
    "Northgate",
    "Orchard",
    "Pinecrest",
    "Quarry",
    "Ridgeline",
    "Saltmarsh",
    "Tern",
    "Umber",
    "Vantage",
    "Willow",
    "Yarrow",
];
const COMPANY_KINDS: [&str; 8] =
    ["Logistics", "Foods", "Analytics", "Textiles", "Energy", "Clinics", "Robotics", "Press"];
const CITIES: [(&str, &str); 12] = [
    ("Rotterdam", "NL"),
    ("Porto", "PT"),
    ("Kraków", "PL"),
    ("Durban", "ZA"),
    ("Osaka", "JP"),
    ("Leeds", "GB"),
    ("Austin", "US"),
    ("Curitiba", "BR"),
    ("Izmir", "TR"),
    ("Pune", "IN"),
    ("Bergen", "NO"),
    ("Lyon", "FR"),
];
const TITLES: [&str; 8] = [
    "Head of Operations",
    "Buyer",
    "CTO",
    "Office Manager",
    "Sales Director",
    "Founder",
    "Data Engineer",
    "Controller",
];
const CAMPAIGNS: [&str; 6] =
    ["spring-webinar", "pricing-page", "trade-fair-hall-4", "newsletter-112", "partner-referral", "search-brand"];
const MAIL_DOMAINS: [&str; 3] = ["example.com", "example.org", "example.net"];
const NOTES: [&str; 8] = [
    "Asked for a quote for the second quarter.",
    "Would like to see a demo with their own figures.",
    "Compares us with two other vendors.",
    "Came back after the talk and left a card.",
    "Prefers to be called in the morning.",
    "Needs an answer before the budget round.",
    "Wants to know where the data is kept.",
    "Has used an earlier version for a year.",
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficSettings {
    /// The same settings yield the same traffic.
    pub seed: u64,
    /// Distinct leads, each with one event.
    pub leads: u32,
    /// Minimum deliveries of each lead.
    pub deliveries_min: u32,
    /// Maximum deliveries of each lead.
    pub deliveries_max: u32,
    /// Rate outside bursts.
    pub deliveries_per_second: u32,
    /// Maximum displacement of a delivery from its position in event order, in deliveries; up to four times as much for
    /// duplicates.
    pub displaced_max: u32,
    /// Share of deliveries, in percent, sent in bursts.
    pub burst_percent: u32,
    /// Deliveries that a burst sends at once.
    pub burst_size: u32,
    /// Minimum body size, reached by adding notes; without notes a body has about 500 bytes.
    pub body_bytes: usize,
}

impl Default for TrafficSettings {
    fn default() -> TrafficSettings {
        TrafficSettings {
            seed: 0,
            leads: 1_000,
            deliveries_min: 1,
            deliveries_max: 5,
            deliveries_per_second: 200,
            displaced_max: 50,
            burst_percent: 30,
            burst_size: 25,
            body_bytes: 700,
        }
    }
}

/// One delivery of one lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Number of the lead, from 0.
    pub lead: u32,
    /// 1 for the first delivery of this lead in plan order, 2 for its first duplicate, and so on.
    pub nth: u32,
    /// Time since the start of the run.
    pub offset: Duration,
}

/// Deliveries ordered by time.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    settings: TrafficSettings,
    deliveries: Vec<Delivery>,
}

impl Traffic {
    /// Plans traffic. Inconsistent settings are clamped: every lead is delivered at least once, and rate and burst size
    /// are at least one.
    pub fn plan(settings: TrafficSettings) -> Traffic {
        let mut rng = SeededRng::new(settings.seed);
        let least = settings.deliveries_min.max(1);
        let most = settings.deliveries_max.max(least);
        let displaced_max = u64::from(settings.displaced_max);
        let mut positions = Vec::new();
        for lead in 0..settings.leads {
            let deliveries = rng.within(u64::from(least)..=u64::from(most));
            // Positions are spaced so that duplicates of a lead interleave with those of its neighbours.
            let base = u64::from(lead) * u64::from(least + most) / 2;
            for repeat in 0..deliveries {
                let displacement_max = if repeat == 0 { displaced_max } else { displaced_max * 4 };
                positions.push((base + rng.within(0..=displacement_max), lead));
            }
        }
        // Shuffling randomizes the order of equal positions; the sort is stable.
        rng.shuffle(&mut positions);
        positions.sort_by_key(|(position, _)| *position);

        let offsets = offsets(&settings, positions.len(), &mut rng);
        let mut seen = vec![0; settings.leads as usize];
        let number = |((_, lead), offset): ((u64, u32), Duration)| {
            let nth: &mut u32 = &mut seen[lead as usize];
            *nth += 1;
            Delivery { lead, nth: *nth, offset }
        };
        let deliveries = positions.into_iter().zip(offsets).map(number).collect();
        Traffic { settings, deliveries }
    }

    /// All deliveries, ordered by time.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// Number of leads; every number below is delivered at least once.
    pub fn leads(&self) -> u32 {
        self.settings.leads
    }

    /// Event id, the same in every delivery of this lead.
    pub fn event_id(&self, lead: u32) -> String {
        let suffix = SeededRng::stream(self.settings.seed ^ 0x5EED, u64::from(lead)).next();
        format!("evt_{lead:08}_{suffix:016x}")
    }

    /// Lead by its number.
    pub fn lead(&self, lead: u32) -> Lead {
        let mut lead = Lead::generate(self.event_id(lead), self.settings.seed, lead);
        let mut rng = SeededRng::new(self.settings.seed ^ lead.score);
        let mut length = lead.to_json().len();
        while length < self.settings.body_bytes {
            let note = rng.pick(&NOTES);
            let gap = if lead.notes.is_empty() { "" } else { " " };
            lead.notes.push_str(gap);
            lead.notes.push_str(note);
            length += gap.len() + note.len();
        }
        lead
    }

    /// JSON body of this lead, the same in every delivery.
    pub fn body(&self, lead: u32) -> Bytes {
        Bytes::from(self.lead(lead).to_json())
    }
}

/// Times of all deliveries: a constant rate interrupted by bursts.
fn offsets(settings: &TrafficSettings, count: usize, rng: &mut SeededRng) -> Vec<Duration> {
    let gap = Duration::from_secs(1) / settings.deliveries_per_second.max(1);
    let burst_size = u64::from(settings.burst_size.max(1));
    let percent = f64::from(settings.burst_percent.min(100)) / 100.0;
    // Probability of a burst start that yields the requested share of deliveries in bursts.
    let start = percent / (burst_size as f64 * (1.0 - percent) + percent).max(f64::MIN_POSITIVE);
    let (mut now, mut burst_remaining) = (Duration::ZERO, 0);
    let mut next_offset = || {
        if burst_remaining == 0 && rng.fraction() < start {
            burst_remaining = burst_size;
        }
        let at = now;
        burst_remaining = u64::saturating_sub(burst_remaining, 1);
        if burst_remaining == 0 {
            now += gap;
        }
        at
    };
    (0..count).map(|_| next_offset()).collect()
}

/// Lead as sent by a web form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    pub event_id: String,
    #[serde(rename = "type")]
    pub event_type: String,
    /// Usable as external id of the CRM record; unique within a plan.
    pub lead_id: String,
    pub occurred_at: jiff::Timestamp,
    pub first_name: String,
    pub last_name: String,
    pub email: String,
    pub phone: String,
    pub company: String,
    pub title: String,
    pub city: String,
    pub country: String,
    pub employees: u64,
    pub score: u64,
    pub consent: bool,
    pub source: String,
    pub campaign: String,
    pub page: String,
    pub notes: String,
}

impl Lead {
    fn generate(event_id: String, seed: u64, number: u32) -> Lead {
        let mut rng = SeededRng::stream(seed, u64::from(number));
        let first_name = *rng.pick(&FIRST_NAMES);
        let last_name = *rng.pick(&LAST_NAMES);
        let (city, country) = *rng.pick(&CITIES);
        let campaign = *rng.pick(&CAMPAIGNS);
        let mailbox = format!("{}.{}", ascii_name(first_name), ascii_name(last_name));
        let second = 1_790_000_000 + i64::from(number) * 7 + rng.below(5) as i64;
        Lead {
            event_id,
            event_type: "lead.created".to_owned(),
            lead_id: format!("L-{:04x}-{number:07}", rng.below(0x1_0000)),
            occurred_at: jiff::Timestamp::from_second(second).expect("the second is in range"),
            first_name: first_name.to_owned(),
            last_name: last_name.to_owned(),
            email: format!("{mailbox}.{number}@{}", rng.pick(&MAIL_DOMAINS)),
            phone: format!("+1-555-01{:02}", rng.below(100)),
            company: format!("{} {}", rng.pick(&COMPANY_WORDS), rng.pick(&COMPANY_KINDS)),
            title: (*rng.pick(&TITLES)).to_owned(),
            city: city.to_owned(),
            country: country.to_owned(),
            employees: rng.within(1..=5_000),
            score: rng.within(0..=100),
            consent: rng.below(10) > 0,
            source: "web-form".to_owned(),
            campaign: campaign.to_owned(),
            page: format!("https://www.example.com/{campaign}?utm_source=mail&utm_campaign={campaign}"),
            notes: String::new(),
        }
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a lead serializes")
    }
}

/// ASCII letters and digits of a name, for an email address.
fn ascii_name(name: &str) -> String {
    name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn small() -> Traffic {
        Traffic::plan(TrafficSettings { leads: 2_000, seed: 42, ..TrafficSettings::default() })
    }

    #[test]
    fn same_settings_yield_the_same_plan_and_another_seed_another_one() {
        assert_eq!(small(), small());
        let other = Traffic::plan(TrafficSettings { leads: 2_000, seed: 43, ..TrafficSettings::default() });
        assert_ne!(small().deliveries, other.deliveries);
        assert_ne!(small().body(0), other.body(0));
    }

    #[test]
    fn every_lead_is_delivered_one_to_five_times() {
        let traffic = small();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for delivery in traffic.deliveries() {
            let count = counts.entry(delivery.lead).or_default();
            *count += 1;
            assert_eq!(delivery.nth, *count);
        }
        assert_eq!(counts.len(), 2_000);
        let seen: HashSet<u32> = counts.into_values().collect();
        assert_eq!(seen, HashSet::from([1, 2, 3, 4, 5]));
    }

    #[test]
    fn deliveries_are_reordered_and_duplicates_interleave() {
        let traffic = small();
        let firsts = traffic.deliveries().iter().filter(|delivery| delivery.nth == 1);
        let order: Vec<u32> = firsts.map(|delivery| delivery.lead).collect();
        assert!(!order.is_sorted());
        let apart = traffic.deliveries().windows(2).filter(|pair| pair[0].lead != pair[1].lead).count();
        assert!(apart * 10 > traffic.deliveries().len() * 9);
    }

    #[test]
    fn offsets_are_sorted_and_bursts_have_the_requested_share() {
        let traffic = small();
        assert!(traffic.deliveries().is_sorted_by_key(|delivery| delivery.offset));
        let mut at: HashMap<Duration, usize> = HashMap::new();
        for delivery in traffic.deliveries() {
            *at.entry(delivery.offset).or_default() += 1;
        }
        let in_bursts: usize = at.values().filter(|count| **count > 1).sum();
        let share = in_bursts * 100 / traffic.deliveries().len();
        assert!((20..=40).contains(&share), "{share} % in bursts");

        let without_bursts = TrafficSettings { burst_percent: 0, leads: 100, ..TrafficSettings::default() };
        let without_bursts = Traffic::plan(without_bursts);
        assert!(
            without_bursts
                .deliveries()
                .windows(2)
                .all(|pair| pair[1].offset - pair[0].offset == Duration::from_millis(5))
        );
    }

    #[test]
    fn bodies_are_json_of_the_requested_size() {
        let traffic = small();
        let mut ids = HashSet::new();
        for number in 0..traffic.leads() {
            let body = traffic.body(number);
            let lead: Lead = serde_json::from_slice(&body).unwrap();
            assert!((700..800).contains(&body.len()), "{} bytes", body.len());
            assert_eq!(lead.event_id, traffic.event_id(number));
            let (_, domain) = lead.email.split_once('@').unwrap();
            assert!(MAIL_DOMAINS.contains(&domain) && lead.email.is_ascii(), "{}", lead.email);
            assert!(ids.insert(lead.event_id) && ids.insert(lead.lead_id) && ids.insert(lead.email));
        }
        let large = TrafficSettings { leads: 1, body_bytes: 20_000, ..TrafficSettings::default() };
        assert!((20_000..20_100).contains(&Traffic::plan(large).body(0).len()));
    }
}
