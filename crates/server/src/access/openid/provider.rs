//! The provider's description and keys, cached. One caller asks the provider; others wait for the same answer.

use std::sync::Arc;

use sluice_connectors::{OpenIdClient, OpenIdError};
use sluice_domain::access::oidc::{
    Discovery, KEYS_READ_EVERY, KeySet, OidcSettings, PROVIDER_CACHED, PROVIDER_RETRY_AFTER,
};
use sluice_domain::time::Time;
use tokio::sync::Mutex;

use crate::clock::Clock;

/// When keys are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// Once they have been kept for long.
    IfOld,
    /// Now, unless the last such wish was a moment ago.
    IfAllowed,
}

#[derive(Debug)]
pub(super) struct Provider {
    clock: Clock,
    client: std::sync::OnceLock<OpenIdClient>,
    cached: Mutex<Cached>,
}

/// What one issuer said.
#[derive(Debug, Default)]
struct Cached {
    issuer: String,
    discovery: Option<(Time, Arc<Discovery>)>,
    keys: Option<(Time, Arc<KeySet>)>,
    /// When keys were last read because none fitted.
    refreshed: Option<Time>,
    failed: Option<(Time, String)>,
}

impl Cached {
    /// Forgets what another issuer said.
    fn of(&mut self, issuer: &str) -> &mut Cached {
        if self.issuer != issuer {
            *self = Cached { issuer: issuer.to_owned(), ..Cached::default() };
        }
        self
    }

    /// Keys that need not be read again.
    fn usable_keys(&self, fresh: Fresh, now: Time) -> Option<Arc<KeySet>> {
        let (read_at, keys) = self.keys.as_ref()?;
        let is_allowed = self.refreshed.is_none_or(|at| now >= at + KEYS_READ_EVERY);
        let is_read_again = now >= *read_at + PROVIDER_CACHED || (fresh == Fresh::IfAllowed && is_allowed);
        (!is_read_again).then(|| keys.clone())
    }

    fn fail(&mut self, error: &OpenIdError, now: Time) -> String {
        let reason = error.to_string();
        self.failed = Some((now, reason.clone()));
        reason
    }

    fn recent_failure(&self, now: Time) -> Option<String> {
        let (_, reason) = self.failed.as_ref().filter(|(at, _)| now < *at + PROVIDER_RETRY_AFTER)?;
        Some(reason.clone())
    }
}

impl Provider {
    pub(super) fn new(clock: Clock) -> Provider {
        Provider { clock, client: std::sync::OnceLock::new(), cached: Mutex::default() }
    }

    /// Made with the first use.
    pub(super) fn client(&self) -> Result<&OpenIdClient, OpenIdError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = OpenIdClient::new()?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The description of the provider. The error says why there is none.
    pub(super) async fn discovery(&self, settings: &OidcSettings) -> Result<Arc<Discovery>, String> {
        let mut cached = self.cached.lock().await;
        let (cached, now) = (cached.of(&settings.issuer), self.clock.now());
        if let Some((read_at, discovery)) = &cached.discovery
            && now < *read_at + PROVIDER_CACHED
        {
            return Ok(discovery.clone());
        }
        if let Some(reason) = cached.recent_failure(now) {
            return Err(reason);
        }
        let read = match self.client() {
            Ok(client) => client.discovery(&settings.issuer).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(discovery) => {
                let discovery = Arc::new(discovery);
                cached.discovery = Some((self.clock.now(), discovery.clone()));
                Ok(discovery)
            }
            Err(error) => Err(cached.fail(&error, self.clock.now())),
        }
    }

    /// The keys of the provider. The error says why there are none.
    pub(super) async fn keys(
        &self,
        settings: &OidcSettings,
        discovery: &Discovery,
        fresh: Fresh,
    ) -> Result<Arc<KeySet>, String> {
        let mut cached = self.cached.lock().await;
        let (cached, now) = (cached.of(&settings.issuer), self.clock.now());
        if let Some(keys) = cached.usable_keys(fresh, now) {
            return Ok(keys);
        }
        if let Some(reason) = cached.recent_failure(now) {
            return Err(reason);
        }
        let read = match self.client() {
            Ok(client) => client.keys(&settings.issuer, &discovery.jwks_uri).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(keys) => {
                let keys = Arc::new(keys);
                cached.keys = Some((self.clock.now(), keys.clone()));
                cached.refreshed = if fresh == Fresh::IfAllowed { Some(now) } else { cached.refreshed };
                Ok(keys)
            }
            Err(error) => Err(cached.fail(&error, self.clock.now())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached() -> Cached {
        let mut cached = Cached::default();
        cached.of("https://a.example").keys = Some((Time(0), Arc::default()));
        cached
    }

    #[test]
    fn unknown_keys_make_the_node_read_again_at_most_once_in_a_minute() {
        let mut cached = cached();
        assert!(cached.usable_keys(Fresh::IfOld, Time(1)).is_some());
        assert!(cached.usable_keys(Fresh::IfAllowed, Time(1)).is_none(), "the first wish is granted at once");
        cached.refreshed = Some(Time(1));
        let again = Time(1) + KEYS_READ_EVERY;
        assert!(cached.usable_keys(Fresh::IfAllowed, Time(again.0 - 1)).is_some());
        assert!(cached.usable_keys(Fresh::IfAllowed, again).is_none());
        assert!(cached.usable_keys(Fresh::IfOld, again).is_some());
        assert!(cached.usable_keys(Fresh::IfOld, Time(0) + PROVIDER_CACHED).is_none());
    }

    #[test]
    fn failure_is_shared_for_a_moment_and_another_issuer_starts_again() {
        let mut cached = cached();
        cached.fail(&OpenIdError::Away("gone".into()), Time(5));
        let later = Time(5) + PROVIDER_RETRY_AFTER;
        assert_eq!(cached.recent_failure(Time(later.0 - 1)).as_deref(), Some("gone"));
        assert_eq!(cached.recent_failure(later), None);
        assert!(cached.of("https://a.example").keys.is_some());
        let other = cached.of("https://b.example");
        assert!(other.keys.is_none() && other.recent_failure(Time(6)).is_none());
    }
}
