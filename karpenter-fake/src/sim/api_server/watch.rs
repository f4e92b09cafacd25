use karpenter_core::engine::{Event, Object};

/// A stream of all changes to one listener, who may lose it.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// What was not read yet; `None` while nobody listens.
    events: Option<Vec<Event>>,
}

impl Watch {
    pub(super) fn start(&mut self, objects: impl Iterator<Item = Object>) {
        self.events = Some(objects.map(Event::Applied).chain([Event::Synced]).collect());
    }

    pub(super) fn stop(&mut self) {
        self.events = None;
    }

    pub(super) fn tell(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
