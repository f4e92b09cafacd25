use karpenter_core::engine::{Event, Object};

/// The most events that wait to be read: some months of a large cluster. Who reads later is told everything anew.
const MAX_UNREAD: usize = 4_000_000;

/// A stream of all changes to one listener, who may lose it.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// What was not read yet; `None` while nobody listens.
    events: Option<Vec<Event>>,
    /// Whether more came than is kept.
    is_overrun: bool,
}

impl Watch {
    pub(super) fn start(&mut self, objects: impl Iterator<Item = Object>) {
        let told = objects.map(Event::Applied);
        self.events = Some([Event::Relist].into_iter().chain(told).chain([Event::Synced]).collect());
        self.is_overrun = false;
    }

    pub(super) fn stop(&mut self) {
        self.events = None;
    }

    pub(super) fn tell(&mut self, event: impl FnOnce() -> Event) {
        match &mut self.events {
            Some(events) if events.len() < MAX_UNREAD => events.push(event()),
            Some(events) => {
                events.clear();
                self.is_overrun = true;
            }
            None => {}
        }
    }

    pub(super) fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
