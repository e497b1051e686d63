//! Traffic the way webhook senders make it: repeated, out of order, in bursts. Pure and seeded; no HTTP client.
//!
//! A [`Traffic`] is a plan. Each [`Delivery`] says which lead to post and when; the event id and the body come from
//! the lead's number alone, so every repeat is the same to the byte and a plan of millions stays small.

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

/// What traffic to plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficSettings {
    /// The same settings give the same traffic.
    pub seed: u64,
    /// Different leads, and so different events.
    pub leads: u32,
    /// Every lead is delivered at least this often, …
    pub deliveries_min: u32,
    /// … and at most this often.
    pub deliveries_max: u32,
    /// The pace outside of bursts.
    pub deliveries_per_second: u32,
    /// How far, in deliveries, one may be displaced from its place in the order of events; repeats come up to four
    /// times as late.
    pub displaced_max: u32,
    /// The share of deliveries, in percent, that come in bursts.
    pub burst_percent: u32,
    /// How many deliveries a burst sends at one moment.
    pub burst_size: u32,
    /// Bodies are filled up with notes to at least this size; without them a body has about 500 bytes.
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

/// One posting of one lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The number of the lead, from 0.
    pub lead: u32,
    /// 1 for the first delivery of this lead in the order of the plan, 2 for its first repeat, and so on.
    pub nth: u32,
    /// When to post it, counted from the start of the run.
    pub offset: Duration,
}

/// A plan of deliveries in the order of their time.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    settings: TrafficSettings,
    deliveries: Vec<Delivery>,
}

impl Traffic {
    /// Plans traffic. Settings that contradict themselves are read in the nearest sensible way: every lead is
    /// delivered at least once, and no pace or burst is smaller than one.
    pub fn plan(settings: TrafficSettings) -> Traffic {
        let mut dice = SeededRng::new(settings.seed);
        let least = settings.deliveries_min.max(1);
        let most = settings.deliveries_max.max(least);
        let displaced_max = u64::from(settings.displaced_max);
        let mut places = Vec::new();
        for lead in 0..settings.leads {
            let deliveries = dice.within(u64::from(least)..=u64::from(most));
            // Places are spread so that a lead and its repeats overlap with their neighbours.
            let home = u64::from(lead) * u64::from(least + most) / 2;
            for repeat in 0..deliveries {
                let reach = if repeat == 0 { displaced_max } else { displaced_max * 4 };
                places.push((home + dice.within(0..=reach), lead));
            }
        }
        // Ties would otherwise keep the order of the leads.
        dice.shuffle(&mut places);
        places.sort_by_key(|(place, _)| *place);

        let offsets = offsets(&settings, places.len(), &mut dice);
        let mut seen = vec![0; settings.leads as usize];
        let number = |((_, lead), offset): ((u64, u32), Duration)| {
            let nth: &mut u32 = &mut seen[lead as usize];
            *nth += 1;
            Delivery { lead, nth: *nth, offset }
        };
        let deliveries = places.into_iter().zip(offsets).map(number).collect();
        Traffic { settings, deliveries }
    }

    /// Every delivery, in the order of their time.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// How many leads there are; every number below is delivered at least once.
    pub fn leads(&self) -> u32 {
        self.settings.leads
    }

    /// The id that every delivery of this lead carries.
    pub fn event_id(&self, lead: u32) -> String {
        let mark = SeededRng::stream(self.settings.seed ^ 0x5EED, u64::from(lead)).next();
        format!("evt_{lead:08}_{mark:016x}")
    }

    /// The lead behind a number.
    pub fn lead(&self, lead: u32) -> Lead {
        let mut lead = Lead::drawn(self.event_id(lead), self.settings.seed, lead);
        let mut dice = SeededRng::new(self.settings.seed ^ lead.score);
        let mut length = lead.to_json().len();
        while length < self.settings.body_bytes {
            let note = dice.pick(&NOTES);
            let gap = if lead.notes.is_empty() { "" } else { " " };
            lead.notes.push_str(gap);
            lead.notes.push_str(note);
            length += gap.len() + note.len();
        }
        lead
    }

    /// The JSON body of this lead, the same in every delivery.
    pub fn body(&self, lead: u32) -> Bytes {
        Bytes::from(self.lead(lead).to_json())
    }
}

/// The moments of all deliveries: an even pace, broken by moments in which a whole burst is sent.
fn offsets(settings: &TrafficSettings, count: usize, dice: &mut SeededRng) -> Vec<Duration> {
    let gap = Duration::from_secs(1) / settings.deliveries_per_second.max(1);
    let burst_size = u64::from(settings.burst_size.max(1));
    let percent = f64::from(settings.burst_percent.min(100)) / 100.0;
    // A burst starts so rarely that the deliveries within bursts come to the share that was asked for.
    let start = percent / (burst_size as f64 * (1.0 - percent) + percent).max(f64::MIN_POSITIVE);
    let (mut now, mut left_in_burst) = (Duration::ZERO, 0);
    let mut moment = || {
        if left_in_burst == 0 && dice.fraction() < start {
            left_in_burst = burst_size;
        }
        let at = now;
        left_in_burst = u64::saturating_sub(left_in_burst, 1);
        if left_in_burst == 0 {
            now += gap;
        }
        at
    };
    (0..count).map(|_| moment()).collect()
}

/// A lead as a web form would send it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    pub event_id: String,
    #[serde(rename = "type")]
    pub event_type: String,
    /// Also usable as the external id of the CRM record; unique among the leads of a plan.
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
    fn drawn(event_id: String, seed: u64, number: u32) -> Lead {
        let mut dice = SeededRng::stream(seed, u64::from(number));
        let first_name = *dice.pick(&FIRST_NAMES);
        let last_name = *dice.pick(&LAST_NAMES);
        let (city, country) = *dice.pick(&CITIES);
        let campaign = *dice.pick(&CAMPAIGNS);
        let mailbox = format!("{}.{}", plain(first_name), plain(last_name));
        let second = 1_790_000_000 + i64::from(number) * 7 + dice.below(5) as i64;
        Lead {
            event_id,
            event_type: "lead.created".to_owned(),
            lead_id: format!("L-{:04x}-{number:07}", dice.below(0x1_0000)),
            occurred_at: jiff::Timestamp::from_second(second).expect("a second of this century is a timestamp"),
            first_name: first_name.to_owned(),
            last_name: last_name.to_owned(),
            email: format!("{mailbox}.{number}@{}", dice.pick(&MAIL_DOMAINS)),
            phone: format!("+1-555-01{:02}", dice.below(100)),
            company: format!("{} {}", dice.pick(&COMPANY_WORDS), dice.pick(&COMPANY_KINDS)),
            title: (*dice.pick(&TITLES)).to_owned(),
            city: city.to_owned(),
            country: country.to_owned(),
            employees: dice.within(1..=5_000),
            score: dice.within(0..=100),
            consent: dice.below(10) > 0,
            source: "web-form".to_owned(),
            campaign: campaign.to_owned(),
            page: format!("https://www.example.com/{campaign}?utm_source=mail&utm_campaign={campaign}"),
            notes: String::new(),
        }
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a lead has string keys and plain values")
    }
}

/// The letters and digits of a name in plain ASCII, for a mail address.
fn plain(name: &str) -> String {
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
    fn the_same_settings_give_the_same_plan_and_another_seed_another() {
        assert_eq!(small(), small());
        let other = Traffic::plan(TrafficSettings { leads: 2_000, seed: 43, ..TrafficSettings::default() });
        assert_ne!(small().deliveries, other.deliveries);
        assert_ne!(small().body(0), other.body(0));
    }

    #[test]
    fn every_lead_is_delivered_one_to_five_times_and_all_five_occur() {
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
    fn deliveries_are_displaced_and_repeats_interleave_with_other_leads() {
        let traffic = small();
        let firsts = traffic.deliveries().iter().filter(|delivery| delivery.nth == 1);
        let order: Vec<u32> = firsts.map(|delivery| delivery.lead).collect();
        assert!(!order.is_sorted());
        let apart = traffic.deliveries().windows(2).filter(|pair| pair[0].lead != pair[1].lead).count();
        assert!(apart * 10 > traffic.deliveries().len() * 9);
    }

    #[test]
    fn times_never_go_back_and_bursts_make_up_their_share() {
        let traffic = small();
        assert!(traffic.deliveries().is_sorted_by_key(|delivery| delivery.offset));
        let mut at: HashMap<Duration, usize> = HashMap::new();
        for delivery in traffic.deliveries() {
            *at.entry(delivery.offset).or_default() += 1;
        }
        let in_bursts: usize = at.values().filter(|count| **count > 1).sum();
        let share = in_bursts * 100 / traffic.deliveries().len();
        assert!((20..=40).contains(&share), "{share} % in bursts");

        let calm = TrafficSettings { burst_percent: 0, leads: 100, ..TrafficSettings::default() };
        let calm = Traffic::plan(calm);
        assert!(calm.deliveries().windows(2).all(|pair| pair[1].offset - pair[0].offset == Duration::from_millis(5)));
    }

    #[test]
    fn bodies_are_realistic_json_of_the_size_asked_for() {
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
