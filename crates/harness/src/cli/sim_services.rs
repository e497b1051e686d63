//! Simulated services beside the CRM: Twilio, Segment, SendGrid, Postmark, Klaviyo, PagerDuty.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sluice_simulator::services::ServiceTruth;
use sluice_simulator::{FaultPlan, Service, ServiceKind, ServiceSettings};

/// A service and where it listens.
#[derive(Clone, Debug)]
pub(super) struct ServiceAddress {
    pub(super) kind: ServiceKind,
    pub(super) listen: SocketAddr,
}

/// Reads `NAME=ADDRESS`.
pub(super) fn service(text: &str) -> Result<ServiceAddress, String> {
    let names = ServiceKind::ALL.map(ServiceKind::name).join(", ");
    let (name, address) = text.split_once('=').ok_or("write NAME=ADDRESS, such as twilio=127.0.0.1:8095")?;
    let kind =
        ServiceKind::parse(name).ok_or_else(|| format!("`{name}` is not simulated; the services are {names}"))?;
    let listen = address.parse().map_err(|_| format!("`{address}` is no address; write 127.0.0.1:8095"))?;
    Ok(ServiceAddress { kind, listen })
}

/// A running service.
pub(super) struct RunningService {
    kind: ServiceKind,
    pub(super) service: Service,
}

impl RunningService {
    pub(super) fn start(address: &ServiceAddress, faults: FaultPlan) -> std::io::Result<RunningService> {
        let kind = address.kind;
        let settings = ServiceSettings { listen: address.listen, faults, ..ServiceSettings::new(kind) };
        Ok(RunningService { kind, service: Service::start(settings)? })
    }

    /// Address and credentials, for people.
    pub(super) fn line(&self) -> (&'static str, String) {
        let account =
            if self.kind == ServiceKind::Twilio { format!("{} ", ServiceKind::ACCOUNT) } else { String::new() };
        (self.kind.name(), format!("{} ({account}{})", self.service.url(), self.kind.credential()))
    }

    pub(super) fn to_json(&self) -> Value {
        let mut shown =
            json!({ "name": self.kind.name(), "url": self.service.url(), "credential": self.kind.credential() });
        if self.kind == ServiceKind::Twilio {
            shown["account"] = ServiceKind::ACCOUNT.into();
        }
        shown
    }
}

/// Effects of all services, and keys with more than one.
pub(super) fn counts(services: &[RunningService]) -> Option<(u64, u64)> {
    let sum =
        |(effects, again): (u64, u64), truth: ServiceTruth| (effects + truth.effects, again + truth.keys_applied_again);
    (!services.is_empty()).then(|| services.iter().map(|running| running.service.truth()).fold((0, 0), sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_name_and_an_address() {
        let read = service("postmark=127.0.0.1:0").unwrap();
        assert_eq!((read.kind, read.listen.port()), (ServiceKind::Postmark, 0));
        for (text, part) in
            [("twilio", "NAME=ADDRESS"), ("twillio=127.0.0.1:1", "twilio, segment"), ("twilio=here", "no address")]
        {
            let problem = service(text).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
