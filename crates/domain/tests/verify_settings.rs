//! Invalid settings and their messages.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue must fail")]

mod verify_support;

use sluice_domain::verify::{
    HmacSettings, Layout, Scheme, Separator, SettingsProblem, SignedStringProblem, TimestampSettings, TimestampSource,
    TimestampUnit, UrlProblem, Verifier, VerifierSettings,
};
use verify_support::settings;

#[test]
fn invalid_settings_are_rejected_with_a_reason() {
    let problem = |change: fn(&mut VerifierSettings), scheme| {
        let mut settings = settings(scheme, 1);
        change(&mut settings);
        Verifier::new(settings).unwrap_err()
    };
    let hmac = |change: fn(&mut HmacSettings)| {
        let mut hmac = HmacSettings::new("X-Sig");
        change(&mut hmac);
        Verifier::new(VerifierSettings { hmac: Some(hmac), public_url: None, ..settings(Scheme::Hmac, 1) }).unwrap_err()
    };
    for &scheme in Scheme::ALL {
        if scheme != Scheme::None {
            let none = problem(|settings| settings.secrets.clear(), scheme);
            assert_eq!(none, SettingsProblem::NoSecret(scheme));
            let empty = problem(|settings| settings.secrets[0].value = "".into(), scheme);
            assert_eq!(empty, SettingsProblem::EmptySecret("main".into()));
        }
    }
    for scheme in [Scheme::Square, Scheme::Twilio, Scheme::Hubspot] {
        let missing = problem(|settings| settings.public_url = None, scheme);
        assert_eq!(missing, SettingsProblem::PublicUrlMissing, "{scheme}");
        let wrong = problem(|settings| settings.public_url = Some("a.b/in".into()), scheme);
        assert_eq!(wrong, SettingsProblem::PublicUrl(UrlProblem::Scheme), "{scheme}");
    }
    for scheme in [Scheme::StandardWebhooks, Scheme::Sendgrid] {
        let wrong = problem(|settings| settings.secrets[0].value = "whpk_AAAA".into(), scheme);
        assert!(matches!(wrong, SettingsProblem::PublicKey { .. }), "{scheme}: {wrong}");
        let wrong = problem(|settings| settings.signing_key = Some("AAAA".into()), scheme);
        assert!(matches!(wrong, SettingsProblem::SigningKey(_)), "{scheme}: {wrong}");
    }
    let unused = problem(|settings| settings.signing_key = Some("x".into()), Scheme::Github);
    assert!(matches!(unused, SettingsProblem::SettingUnused { setting: "signing key", .. }));
    let missing = problem(|settings| settings.token = None, Scheme::Token);
    assert!(matches!(missing, SettingsProblem::SettingMissing { setting: "token", .. }));
    let no_user = problem(|settings| settings.secrets[0].value = "password".into(), Scheme::Basic);
    assert_eq!(no_user, SettingsProblem::NoUserName("main".into()));
    let colon = problem(|settings| settings.user_name = Some("a:b".into()), Scheme::Basic);
    assert_eq!(colon, SettingsProblem::UserNameColon);

    let wrong = hmac(|hmac| hmac.signed = "{ts}.{body}".into());
    let unknown = SignedStringProblem::UnknownPlaceholder("ts".into());
    assert_eq!(wrong, SettingsProblem::Template(unknown));
    let wrong = hmac(|hmac| hmac.signed = "{timestamp}.{body}".into());
    assert_eq!(wrong, SettingsProblem::TimestampSourceMissing);
    assert_eq!(hmac(|hmac| hmac.signed = "{url}{body}".into()), SettingsProblem::PublicUrlMissing);
    assert_eq!(hmac(|hmac| hmac.signed = "{id}{body}".into()), SettingsProblem::IdHeaderMissing);
    let stamp = |source| Some(TimestampSettings { source, unit: TimestampUnit::Seconds });
    let mut unsigned = HmacSettings::new("X-Sig");
    unsigned.timestamp = stamp(TimestampSource::Header("X-Time".into()));
    let with = |hmac| Verifier::new(VerifierSettings { hmac: Some(hmac), ..settings(Scheme::Hmac, 1) });
    assert_eq!(with(unsigned.clone()).unwrap_err(), SettingsProblem::TimestampNotSigned);
    unsigned.signed = "{timestamp}{body}".into();
    unsigned.timestamp = stamp(TimestampSource::Field("t".into()));
    assert_eq!(with(unsigned.clone()).unwrap_err(), SettingsProblem::FieldWithoutList);
    unsigned.timestamp = stamp(TimestampSource::Body("a..b".into()));
    assert_eq!(with(unsigned).unwrap_err(), SettingsProblem::Path("a..b".into()));
    let wrong = hmac(|hmac| {
        hmac.layout = Layout::List {
            separator: Separator::Comma,
            assign: sluice_domain::verify::Assign::Comma,
            signature_key: "v1".into(),
        };
    });
    assert_eq!(wrong, SettingsProblem::SeparatorClash);
    let wrong = with(HmacSettings::new("X Sig")).unwrap_err();
    assert_eq!(wrong, SettingsProblem::HeaderName("X Sig".into()));
}
