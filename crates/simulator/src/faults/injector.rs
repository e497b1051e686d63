//! Decides per call which fault of a plan applies, and counts the injected faults.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{CallKind, Fault, FaultKind, FaultPlan, Match, Millis, PlanError};
use crate::lock;
use crate::rng::SeededRng;

/// Properties of a call that a plan can match.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) kind: CallKind,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) keys: &'a [&'a str],
}

/// Latency and fault for one call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    pub(crate) latency: Duration,
    pub(crate) fault: Option<Fault>,
}

impl Decision {
    pub(crate) const NONE: Decision = Decision { latency: Duration::ZERO, fault: None };
}

#[derive(Debug)]
pub(crate) struct Injector {
    /// The plan has no faults, so no lock is needed.
    is_empty: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    installed: Instant,
    calls: u64,
    matched: Vec<u64>,
    counts: BTreeMap<FaultKind, u64>,
}

impl Injector {
    pub(crate) fn new(plan: FaultPlan) -> Result<Injector, PlanError> {
        plan.check()?;
        let is_empty = AtomicBool::new(has_no_faults(&plan));
        Ok(Injector { is_empty, state: Mutex::new(State::new(plan)) })
    }

    /// Installs another plan: call number and time restart, counts continue.
    pub(crate) fn replace(&self, plan: FaultPlan) -> Result<(), PlanError> {
        plan.check()?;
        let is_empty = has_no_faults(&plan);
        let mut state = lock(&self.state);
        let counts = std::mem::take(&mut state.counts);
        *state = State { counts, ..State::new(plan) };
        self.is_empty.store(is_empty, Ordering::Release);
        Ok(())
    }

    pub(crate) fn decide(&self, call: &Call<'_>) -> Decision {
        if self.is_empty.load(Ordering::Acquire) {
            return Decision::NONE;
        }
        let mut state = lock(&self.state);
        let elapsed = state.installed.elapsed();
        state.decide(call, elapsed)
    }

    /// The installed plan.
    pub(crate) fn plan(&self) -> FaultPlan {
        lock(&self.state).plan.clone()
    }

    pub(crate) fn counts(&self) -> BTreeMap<FaultKind, u64> {
        lock(&self.state).counts.clone()
    }

    pub(crate) fn reset_counts(&self) {
        lock(&self.state).counts.clear();
    }
}

fn has_no_faults(plan: &FaultPlan) -> bool {
    plan.latency.is_none() && plan.script.is_empty() && plan.outages.is_empty() && plan.percent == 0.0
}

impl State {
    fn new(plan: FaultPlan) -> State {
        let matched = vec![0; plan.script.len()];
        State { plan, installed: Instant::now(), calls: 0, matched, counts: BTreeMap::new() }
    }

    fn decide(&mut self, call: &Call<'_>, elapsed: Duration) -> Decision {
        let in_scope = self.plan.calls.contains(&call.kind);
        let mut rng = SeededRng::stream(self.plan.seed, self.calls);
        self.calls += u64::from(in_scope);

        let latency = self.plan.latency.filter(|_| in_scope).map_or(Duration::ZERO, |millis| draw(&mut rng, millis));
        let mut fault = self.scripted(call);
        if in_scope {
            fault = fault.or_else(|| self.outage(call, elapsed)).or_else(|| self.random(call, &mut rng));
        }
        let fault = fault.map(|fault| match fault {
            Fault::Latency(millis) => {
                let drawn = draw(&mut rng, millis).as_millis() as u64;
                Fault::Latency(Millis::fixed(drawn))
            }
            other => other,
        });
        if let Some(fault) = &fault {
            *self.counts.entry(fault.kind()).or_default() += 1;
        }
        Decision { latency, fault }
    }

    fn scripted(&mut self, call: &Call<'_>) -> Option<Fault> {
        let mut chosen = None;
        for (scripted, matched) in self.plan.script.iter().zip(&mut self.matched) {
            if chosen.is_some() || !scripted.when.matches(call) || !scripted.fault.applies_to(call.kind) {
                continue;
            }
            let index = *matched;
            *matched += 1;
            let end = scripted.times.map_or(u64::MAX, |times| scripted.skip.saturating_add(times));
            if (scripted.skip..end).contains(&index) {
                chosen = Some(scripted.fault.clone());
            }
        }
        chosen
    }

    fn outage(&self, call: &Call<'_>, elapsed: Duration) -> Option<Fault> {
        let elapsed_ms = elapsed.as_millis() as u64;
        let outage = self.plan.outages.iter().find(|outage| {
            let now_ms = outage.every_ms.map_or(elapsed_ms, |every| elapsed_ms % every);
            (outage.from_ms..outage.to_ms).contains(&now_ms) && outage.fault.applies_to(call.kind)
        })?;
        Some(outage.fault.clone())
    }

    fn random(&self, call: &Call<'_>, rng: &mut SeededRng) -> Option<Fault> {
        if rng.fraction() * 100.0 >= self.plan.percent {
            return None;
        }
        let applicable = || self.plan.random.iter().filter(|weighted| weighted.fault.applies_to(call.kind));
        let total = applicable().map(|weighted| u64::from(weighted.weight)).sum();
        let mut ticket = rng.below(total);
        for weighted in applicable() {
            let weight = u64::from(weighted.weight);
            if ticket < weight {
                return Some(weighted.fault.clone());
            }
            ticket -= weight;
        }
        None
    }
}

impl Match {
    fn matches(&self, call: &Call<'_>) -> bool {
        let kind = self.kind.map_or(call.kind != CallKind::Token, |kind| kind == call.kind);
        kind && self.method.as_deref().is_none_or(|method| method.eq_ignore_ascii_case(call.method))
            && self.path_contains.as_deref().is_none_or(|part| call.path.contains(part))
            && self.key.as_deref().is_none_or(|key| call.keys.contains(&key))
    }
}

fn draw(rng: &mut SeededRng, millis: Millis) -> Duration {
    Duration::from_millis(rng.within(millis.min_ms..=millis.max_ms))
}

#[cfg(test)]
mod tests {
    use super::super::{Everything, Outage, Scripted, Weighted};
    use super::*;

    fn everything(percent: f64, seed: u64) -> FaultPlan {
        Everything { percent, seed, ..Everything::default() }.plan()
    }

    fn write<'a>(keys: &'a [&'a str]) -> Call<'a> {
        Call { kind: CallKind::Write, method: "PATCH", path: "/sobjects/Lead/External_Lead_Id__c/a", keys }
    }

    fn read() -> Call<'static> {
        Call { kind: CallKind::Read, method: "GET", path: "/query", keys: &[] }
    }

    fn kinds(plan: &FaultPlan, calls: usize) -> Vec<Option<FaultKind>> {
        let mut state = State::new(plan.clone());
        (0..calls).map(|_| state.decide(&write(&[]), Duration::ZERO).fault.map(|fault| fault.kind())).collect()
    }

    #[test]
    fn same_seed_and_order_yield_the_same_faults() {
        let plan = everything(30.0, 11);
        assert_eq!(kinds(&plan, 500), kinds(&plan, 500));
        assert_ne!(kinds(&plan, 500), kinds(&everything(30.0, 12), 500));
    }

    #[test]
    fn thirty_percent_of_calls_fail_with_every_kind_of_fault() {
        let plan = everything(30.0, 3);
        let drawn = kinds(&plan, 20_000);
        let failed = drawn.iter().flatten().count();
        assert!((5_600..6_400).contains(&failed), "{failed} of 20000");
        for weighted in &plan.random {
            assert!(drawn.contains(&Some(weighted.fault.kind())), "{:?} never drawn", weighted.fault);
        }
        assert_eq!(kinds(&everything(0.0, 3), 1_000).iter().flatten().count(), 0);
        assert_eq!(kinds(&everything(100.0, 3), 1_000).iter().flatten().count(), 1_000);
    }

    #[test]
    fn write_faults_never_apply_to_reads() {
        let mut state = State::new(everything(100.0, 5));
        for _ in 0..2_000 {
            let fault = state.decide(&read(), Duration::ZERO).fault.expect("every call fails");
            assert!(!matches!(fault, Fault::LockRow | Fault::DuplicateValue));
        }
    }

    #[test]
    fn scripted_faults_count_their_own_matches_in_order() {
        let plan = FaultPlan::scripted([
            Scripted::for_key("b", Fault::LockRow).times(1),
            Scripted::first(2, Fault::DropAfter).after(1),
        ]);
        let mut state = State::new(plan);
        let mut decide = |key: &str| state.decide(&write(&[key]), Duration::ZERO).fault;
        assert_eq!(decide("a"), None);
        assert_eq!(decide("b"), Some(Fault::LockRow));
        assert_eq!(decide("b"), Some(Fault::DropAfter));
        assert_eq!(decide("a"), Some(Fault::DropAfter));
        assert_eq!(decide("a"), None);
    }

    #[test]
    fn token_calls_fail_only_when_selected() {
        let token = Call { kind: CallKind::Token, method: "POST", path: "/services/oauth2/token", keys: &[] };
        let decide = |plan: FaultPlan| State::new(plan).decide(&token, Duration::ZERO).fault;
        assert_eq!(decide(FaultPlan::always(Fault::DropBefore)), None);
        assert_eq!(decide(FaultPlan::scripted([Scripted::first(1, Fault::DropBefore)])), None);
        let selected = Scripted::first(1, Fault::DropBefore).only(CallKind::Token);
        assert_eq!(decide(FaultPlan::scripted([selected])), Some(Fault::DropBefore));
    }

    #[test]
    fn outages_repeat_with_their_period() {
        let outage = Outage { from_ms: 100, to_ms: 200, every_ms: Some(1_000), fault: Fault::DropBefore };
        let mut state = State::new(FaultPlan { outages: vec![outage], ..FaultPlan::default() });
        let mut out = |ms| state.decide(&read(), Duration::from_millis(ms)).fault.is_some();
        assert_eq!([99, 100, 199, 200, 1_150, 1_200].map(&mut out), [false, true, true, false, true, false]);
    }

    #[test]
    fn faults_are_counted_by_kind_and_counts_survive_a_new_plan() {
        let injector = Injector::new(FaultPlan::scripted([Scripted::first(2, Fault::LockRow)])).unwrap();
        for _ in 0..5 {
            injector.decide(&write(&[]));
        }
        injector.replace(FaultPlan::always(Fault::ErrorAfter)).unwrap();
        injector.decide(&write(&[]));
        assert_eq!(injector.counts(), BTreeMap::from([(FaultKind::LockRow, 2), (FaultKind::ErrorAfter, 1)]));
    }

    #[test]
    fn invalid_plans_are_rejected() {
        let fault = |fault| FaultPlan::always(fault).check().unwrap_err();
        assert_eq!(
            fault(Fault::Gateway { status: 500, moment: super::super::Moment::BeforeApplying }),
            PlanError::Gateway(500)
        );
        assert_eq!(fault(Fault::TrickleBody { chunk_bytes: 0, gap_ms: 1 }), PlanError::Trickle);
        assert_eq!(fault(Fault::Latency(Millis::between(2, 1))), PlanError::InvertedRange(Millis::between(2, 1)));
        let percent = FaultPlan { percent: 101.0, ..FaultPlan::default() };
        assert_eq!(percent.check(), Err(PlanError::Percent(101.0)));
        let nothing = FaultPlan {
            percent: 5.0,
            random: vec![Weighted { weight: 0, fault: Fault::LockRow }],
            ..FaultPlan::default()
        };
        assert_eq!(nothing.check(), Err(PlanError::NothingToDraw));
        assert_eq!(Everything::default().plan().check(), Ok(()));
    }

    #[test]
    fn plan_parses_from_json_and_rejects_unknown_keys() {
        let plan: FaultPlan = serde_json::from_str(
            r#"{"percent": 10, "random": [{"fault": {"kind": "too_many_requests", "retry_after": {"seconds": 2}}}],
                "script": [{"when": {"key": "x"}, "times": 1, "fault": {"kind": "latency", "min_ms": 1, "max_ms": 2}}]}"#,
        )
        .unwrap();
        assert_eq!(plan.random[0].weight, 1);
        assert_eq!(plan.script[0].fault, Fault::Latency(Millis::between(1, 2)));
        let reparsed: FaultPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(reparsed, plan);
        assert!(serde_json::from_str::<FaultPlan>(r#"{"persent": 10}"#).is_err());
    }
}
