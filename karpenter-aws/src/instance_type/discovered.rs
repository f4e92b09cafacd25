use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{InstanceType, Quantity, ResourceName, Timestamp};

/// For how long a memory that was seen counts.
const MEMORY_TTL: Duration = Duration::from_hours(60 * 24);

/// What nodes said of their memory: of an instance type, with a set of images. It is better than any formula.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredMemory {
    seen: BTreeMap<(String, Vec<String>), (Quantity, Timestamp)>,
    /// Counts what changes the answers.
    version: u64,
}

impl DiscoveredMemory {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self { seen: BTreeMap::new(), version: 0 }
    }

    /// A node of this type, started from one of these images, has so much memory. Of several the least counts.
    pub fn learn(&mut self, instance_type: &str, images: &[String], memory: Quantity, now: Timestamp) {
        let before = self.seen.len();
        self.seen.retain(|_, (_, since)| now.since(*since) < MEMORY_TTL);
        self.version += u64::from(self.seen.len() != before);
        let key = key(instance_type, images);
        let known = self.seen.get(&key).map(|(known, _)| *known);
        if known.is_none_or(|known| memory <= known) {
            self.seen.insert(key, (memory, now));
            self.version += u64::from(known != Some(memory));
        }
    }

    /// Counts what changes the answers.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// What was seen, if it was not too long ago.
    pub fn get(&self, instance_type: &str, images: &[String], now: Timestamp) -> Option<Quantity> {
        let (memory, since) = self.seen.get(&key(instance_type, images))?;
        (now.since(*since) < MEMORY_TTL).then_some(*memory)
    }

    /// Sets the memory of a type to what was seen of it. What is kept free of it stays as it was.
    pub fn apply(&self, instance_type: &mut InstanceType, images: &[String], now: Timestamp) {
        if let Some(memory) = self.get(&instance_type.name, images, now) {
            instance_type.capacity.insert(ResourceName::Memory, memory);
        }
    }
}

fn key(instance_type: &str, images: &[String]) -> (String, Vec<String>) {
    let mut images = images.to_vec();
    images.sort();
    images.dedup();
    (instance_type.to_owned(), images)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_counts_for_sixty_days() {
        let images = |names: [&str; 2]| names.map(str::to_owned);
        let day = |n: u64| Timestamp::from_millis(0) + Duration::from_hours(n * 24);
        let gib = |n: i64| Quantity::from_bytes(n << 30);
        let mut memory = DiscoveredMemory::new();
        memory.learn("m5.large", &images(["a", "b"]), gib(7), day(0));
        memory.learn("m5.large", &images(["b", "a"]), gib(8), day(10));
        assert_eq!(memory.get("m5.large", &images(["b", "a"]), day(59)), Some(gib(7)));
        assert_eq!(memory.get("m5.large", &images(["b", "c"]), day(1)), None, "other images");
        assert_eq!(memory.get("m5.large", &images(["a", "b"]), day(60)), None, "too long ago");
        let version = memory.version();
        memory.learn("m5.large", &images(["a", "b"]), gib(7), day(20));
        assert_eq!(memory.version(), version);
        assert_eq!(memory.get("m5.large", &images(["a", "b"]), day(79)), Some(gib(7)), "seen again");
        memory.learn("m5.large", &images(["a", "b"]), gib(6), day(21));
        assert_eq!(memory.version(), version + 1);
        assert_eq!(memory.get("m5.large", &images(["a", "b"]), day(22)), Some(gib(6)));
    }
}
