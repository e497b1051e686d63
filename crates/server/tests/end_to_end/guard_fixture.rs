//! A shop that writes to people who left their carts.

use serde_json::{Value, json};
use sluice_simulator::{Smtp, SmtpSettings};

use crate::fixture::World;

pub(crate) const FLOW: &str = r#"
name: carts
source: website
triggers:
  - http:
      path: /in/website
      verify: { scheme: hmac, header: X-Signature, algorithm: sha256, encoding: hex, prefix: "sha256=", secret: "${secrets.WEBSITE_SECRET}" }
      idempotency: { key_from: body.id, ttl: 30d }
event:
  type: cart.abandoned
  id: body.id
  identity: { email: "{{ body.email | lower | trim }}" }
  attributes: { first_name: body.first_name, total: body.total, consent: body.consent, time_zone: body.time_zone }
steps:
  - { name: enqueue, queue: carts }
queues:
  - { name: carts, visibility_timeout: 5s }
"#;

/// A worker that sends one message, with more keys for its step.
pub(crate) fn worker(more: &str) -> String {
    format!(
        "name: cart-recovery\nconsumes: carts\nretry: {{ base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }}\nrun:\n  - name: send\n    run: messaging.send_template\n    with: {{ template: cart, to: \"{{{{ event.email }}}}\", vars: {{ offer: ten per cent }} }}\n{more}"
    )
}

pub(crate) const SUBJECT: &str = "Your cart, {{ event.first_name }}\n";
pub(crate) const TEXT: &str = "Hello {{ event.first_name }},\nyour cart of {{ event.total }} waits. {{ vars.offer }}\n";
pub(crate) const HTML: &str = "<p>Hello {{ event.first_name }}</p>\n";

/// A node, and a mail server that tells the truth.
pub(crate) struct Shop {
    pub world: World,
    pub smtp: Smtp,
}

impl Shop {
    /// The usual flow and messages, this worker, and more files.
    pub(crate) async fn open(worker: &str, more: &[(&str, &str)]) -> Shop {
        let smtp = Smtp::start(SmtpSettings::default()).unwrap();
        let destination = format!(
            "destinations:\n  mail: {{ type: smtp, host: 127.0.0.1, port: {}, tls: none, from: \"Shop <shop@example.com>\", timeout: 2s }}\n",
            smtp.address().port()
        );
        let mut files = vec![
            ("flow.yml", FLOW),
            ("worker.yml", worker),
            ("mail.yml", destination.as_str()),
            ("templates/cart.subject", SUBJECT),
            ("templates/cart.txt", TEXT),
            ("templates/cart.html", HTML),
        ];
        files.extend_from_slice(more);
        Shop { world: World::start_with(&files).await, smtp }
    }

    /// Posts a cart and gives back its only job once that is settled.
    pub(crate) async fn settled(&self, cart: &Value) -> Value {
        let event = self.world.post(cart).await.event();
        let jobs = self.world.settled(&event).await;
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        self.world.job(jobs[0]["id"].as_str().unwrap()).await
    }

    pub(crate) fn mails(&self) -> usize {
        self.smtp.messages().len()
    }
}

pub(crate) fn cart(id: &str, person: &str) -> Value {
    json!({
        "id": id, "email": format!("{person}@example.com"), "first_name": "Ada", "total": 42,
        "consent": true, "time_zone": "Europe/Berlin"
    })
}
