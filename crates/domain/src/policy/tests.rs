use proptest::prelude::*;
use serde_json::json;

use super::*;

fn expression(source: &str) -> Expression {
    Expression::parse(source).unwrap()
}

fn policy(rules: Vec<(&str, RuleKind)>) -> Policy {
    Policy {
        name: "marketing".into(),
        contact: vec![expression("event.email"), expression("event.phone")],
        channel: "email".into(),
        rules: rules.into_iter().map(|(name, kind)| Rule { name: name.into(), kind }).collect(),
    }
}

fn scope(event: Value) -> Scope {
    let mut scope = Scope::new();
    scope.set("event", event);
    scope
}

fn decide(policy: &Policy, event: Value, known: &ContactFacts, now: &str) -> PolicyDecision {
    let scope = scope(event);
    let contact = policy.contact(&scope).unwrap();
    policy.evaluate(&scope, contact.as_ref(), known, Time::parse(now).unwrap()).unwrap()
}

fn consent(from: ConsentSource, default: ConsentDefault) -> RuleKind {
    RuleKind::Consent { from, default }
}

fn hours(from: &str, to: &str, action: QuietAction) -> RuleKind {
    RuleKind::QuietHours(QuietHours {
        from: TimeOfDay::parse(from).unwrap(),
        to: TimeOfDay::parse(to).unwrap(),
        zone: Some(expression("event.time_zone")),
        fallback: zone("Europe/Berlin").unwrap(),
        action,
    })
}

const NOON: &str = "2026-11-15T12:00:00Z";

fn rule_of(decision: &PolicyDecision) -> Option<&str> {
    match decision {
        PolicyDecision::Allowed(_) => None,
        PolicyDecision::Refused(refusal) | PolicyDecision::Later { refusal, .. } => Some(&refusal.rule),
    }
}

#[test]
fn consent_comes_from_the_event_or_the_table_and_falls_back_to_the_default() {
    for (value, default, allowed) in [
        (json!(true), ConsentDefault::Deny, true),
        (json!("yes"), ConsentDefault::Deny, true),
        (json!("unsubscribed"), ConsentDefault::Allow, false),
        (json!(null), ConsentDefault::Deny, false),
        (json!(null), ConsentDefault::Allow, true),
        (json!("perhaps"), ConsentDefault::Deny, false),
    ] {
        let policy = policy(vec![("consent", consent(ConsentSource::Event(expression("event.consent")), default))]);
        let decision = decide(&policy, json!({"email": "a@b.c", "consent": value}), &ContactFacts::default(), NOON);
        assert_eq!(rule_of(&decision).is_none(), allowed, "{value} {decision:?}");
    }
    let policy = policy(vec![("consent", consent(ConsentSource::Table("news".into()), ConsentDefault::Deny))]);
    let table = |granted| ContactFacts { consent: vec![("news".into(), granted)], suppressed: false };
    let event = || json!({"email": "a@b.c"});
    assert_eq!(rule_of(&decide(&policy, event(), &table(true), NOON)), None);
    assert_eq!(rule_of(&decide(&policy, event(), &table(false), NOON)), Some("consent"));
    assert_eq!(rule_of(&decide(&policy, event(), &ContactFacts::default(), NOON)), Some("consent"));
}

#[test]
fn first_refusal_decides_and_caps_are_reserved_last() {
    let when = |source| RuleKind::When(expression(source));
    let daily = Cap { max: 1, window: Duration::from_secs(86_400) };
    let policy = policy(vec![
        ("daily", RuleKind::Cap(daily)),
        ("big", when("event.total > 10")),
        ("known", when("event.known")),
    ]);
    let refused = decide(&policy, json!({"email": "a@b.c", "total": 3}), &ContactFacts::default(), NOON);
    let PolicyDecision::Refused(refusal) = &refused else { panic!("{refused:?}") };
    assert_eq!(
        refusal.to_value(),
        json!({"noop": "refused by policy", "policy": "marketing", "rule": "big", "detail": "`event.total > 10` is false"})
    );
    let allowed =
        decide(&policy, json!({"email": "Ada <A@B.c>", "total": 30, "known": 1}), &ContactFacts::default(), NOON);
    let PolicyDecision::Allowed(caps) = allowed else { panic!("{allowed:?}") };
    assert_eq!(caps.len(), 1);
    assert_eq!((caps[0].cap, caps[0].contact), (daily, Contact::new("a@b.c").unwrap().digest()));
}

#[test]
fn rules_that_need_a_contact_refuse_an_event_without_one() {
    let cap = RuleKind::Cap(Cap { max: 1, window: Duration::from_secs(1) });
    for kind in [
        cap,
        RuleKind::Suppression(Suppression::default()),
        consent(ConsentSource::Table("x".into()), ConsentDefault::Allow),
    ] {
        let policy = policy(vec![("rule", kind)]);
        assert_eq!(rule_of(&decide(&policy, json!({"email": " "}), &ContactFacts::default(), NOON)), Some("rule"));
    }
}

#[test]
fn suppression_list_covers_contacts_and_domains() {
    let listed = Suppression::read("# left us\nADA@example.com  # asked twice\n\n@rival.example\n");
    let policy = policy(vec![("suppression", RuleKind::Suppression(Suppression { listed: Arc::new(listed) }))]);
    for (email, suppressed, allowed) in [
        ("ada@EXAMPLE.com", false, false),
        ("eve@rival.example", false, false),
        ("bob@example.com", false, true),
        ("bob@example.com", true, false),
    ] {
        let known = ContactFacts { suppressed, ..ContactFacts::default() };
        let decision = decide(&policy, json!({ "email": email }), &known, NOON);
        assert_eq!(rule_of(&decision).is_none(), allowed, "{email}");
    }
}

#[test]
fn quiet_hours_use_the_zone_of_the_contact() {
    // 22:30 in Berlin, 16:30 in New York.
    let late = "2026-11-15T21:30:00Z";
    let skip = policy(vec![("night", hours("21:00", "08:00", QuietAction::Skip))]);
    let zone = |zone: &str| json!({"email": "a@b.c", "time_zone": zone});
    assert_eq!(rule_of(&decide(&skip, zone("Europe/Berlin"), &ContactFacts::default(), late)), Some("night"));
    assert_eq!(rule_of(&decide(&skip, zone("America/New_York"), &ContactFacts::default(), late)), None);
    assert_eq!(
        rule_of(&decide(&skip, zone("Atlantis"), &ContactFacts::default(), late)),
        Some("night"),
        "the fallback is Berlin"
    );
    let wait = policy(vec![("night", hours("21:00", "08:00", QuietAction::Wait))]);
    let PolicyDecision::Later { until, .. } = decide(&wait, zone("Europe/Berlin"), &ContactFacts::default(), late)
    else {
        panic!()
    };
    assert_eq!(until, Time::parse("2026-11-16T07:00:00Z").unwrap());
    let early = "2026-11-16T03:00:00Z";
    let PolicyDecision::Later { until, .. } = decide(&wait, zone("Europe/Berlin"), &ContactFacts::default(), early)
    else {
        panic!()
    };
    assert_eq!(until, Time::parse("2026-11-16T07:00:00Z").unwrap());
    // Clocks go forward in this night: 02:30 does not exist, and the quiet hours end at 03:30.
    let spring = policy(vec![("night", hours("22:00", "02:30", QuietAction::Wait))]);
    let PolicyDecision::Later { until, .. } =
        decide(&spring, zone("Europe/Berlin"), &ContactFacts::default(), "2026-03-29T00:30:00Z")
    else {
        panic!()
    };
    assert_eq!(until, Time::parse("2026-03-29T01:30:00Z").unwrap());
}

#[test]
fn deferral_in_the_repeated_hour_of_a_clock_change_lasts_to_its_end() {
    let autumn = policy(vec![("night", hours("22:00", "01:30", QuietAction::Wait))]);
    let event = json!({"email": "a@b.c", "time_zone": "America/New_York"});
    // 01:10 for the first and for the second time.
    for now in ["2026-11-01T05:10:00Z", "2026-11-01T06:10:00Z"] {
        let decision = decide(&autumn, event.clone(), &ContactFacts::default(), now);
        let PolicyDecision::Later { until, .. } = decision else { panic!("{decision:?}") };
        assert_eq!(until, Time::parse("2026-11-01T06:30:00Z").unwrap(), "{now}");
    }
}

#[test]
fn refusal_wins_over_deferral() {
    let policy = policy(vec![
        ("night", hours("00:00", "23:59", QuietAction::Wait)),
        ("never", RuleKind::When(expression("event.absent"))),
    ]);
    let decision = decide(&policy, json!({"email": "a@b.c"}), &ContactFacts::default(), NOON);
    assert!(matches!(decision, PolicyDecision::Refused(ref refusal) if &*refusal.rule == "never"), "{decision:?}");
}

#[test]
fn time_of_day_parses() {
    for (text, minutes) in
        [("21:00", Some(1260)), ("8:05", Some(485)), ("24:00", Some(0)), ("25:00", None), ("9", None), ("9:5", None)]
    {
        assert_eq!(TimeOfDay::parse(text).map(|clock| clock.0), minutes, "{text}");
    }
}

proptest! {
    /// For any hours, zone and time: a deferral ends at the end of the quiet hours, and the effect is allowed then.
    #[test]
    fn deferral_ends_outside_quiet_hours(from in 0u32..1440, to in 0u32..1440, at in 1_500_000_000_000i64..2_000_000_000_000, zone_index in 0usize..6) {
        let names = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "UTC"];
        let hours = QuietHours { from: TimeOfDay(from), to: TimeOfDay(to), zone: None, fallback: zone(names[zone_index]).unwrap(), action: QuietAction::Wait };
        let mut now = Time(at);
        // A clock change may put the end into the quiet hours again, once.
        for round in 0..3 {
            match hours.evaluate(&Scope::new(), now).unwrap() {
                QuietStatus::Inactive(_) => break,
                QuietStatus::Active { until, .. } => {
                    prop_assert!(until > now && until.0 - now.0 <= 26 * 3_600_000, "{now} {until}");
                    prop_assert!(round < 2, "it never ends");
                    now = until;
                }
            }
        }
    }

    /// The position of a refusing rule among passing and deferring rules does not matter.
    #[test]
    fn refusal_wins_in_any_position(position in 0usize..4, passing in proptest::collection::vec(0u8..2, 3)) {
        let mut rules: Vec<(&str, RuleKind)> = passing.iter().map(|kind| match kind {
            0 => ("passes", RuleKind::When(expression("event.email"))),
            _ => ("later", hours("00:00", "23:59", QuietAction::Wait)),
        }).collect();
        rules.insert(position, ("no", RuleKind::When(expression("event.absent"))));
        let decision = decide(&policy(rules), json!({"email": "a@b.c"}), &ContactFacts::default(), NOON);
        prop_assert_eq!(rule_of(&decision), Some("no"));
    }
}
