//! An event between the door and its first run.

use std::fmt;
use std::sync::Mutex;

use sluice_domain::event::Event;

/// The event that a body tells of, so that its first run need not read the text again. It is in memory alone: nothing of it
/// is written, a copy has none, and it does not tell one body from another.
#[derive(Default)]
pub struct DecodedEvent(Mutex<Option<Box<Event>>>);

impl DecodedEvent {
    /// Keeps an event, which must be as it is read from its text.
    pub fn put(&self, event: Event) {
        if let Ok(mut place) = self.0.lock() {
            *place = Some(Box::new(event));
        }
    }

    /// Takes it away.
    pub fn take(&self) -> Option<Event> {
        self.0.lock().ok()?.take().map(|event| *event)
    }
}

impl Clone for DecodedEvent {
    fn clone(&self) -> DecodedEvent {
        DecodedEvent::default()
    }
}

impl PartialEq for DecodedEvent {
    fn eq(&self, _: &DecodedEvent) -> bool {
        true
    }
}

impl Eq for DecodedEvent {}

impl fmt::Debug for DecodedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtHand")
    }
}
