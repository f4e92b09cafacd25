//! Clusters in which anything happens at any time.

use std::time::Duration;

use karpenter_core::{
    OfferingKey,
    api::ObjectKey,
    engine::EngineOptions,
    provider::{CreateError, ProviderError, ProviderErrorKind, ProviderEvent},
};

use crate::world::World;

/// Numbers that look random and are the same each time (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// How many clusters. Ten take some seconds in a debug build.
const SEEDS: u64 = 10;

fn disturb(world: &mut World, dice: &mut Dice, round: usize) {
    match dice.roll(12) {
        0..=2 => {
            let cpu = ["200m", "900m", "1500m"][usize::try_from(dice.roll(3)).expect("small")];
            world.add_pods(&format!("pod{round}"), usize::try_from(dice.roll(6) + 1).expect("small"), cpu);
        }
        3..=5 => {
            let keys: Vec<ObjectKey> = world.pods.keys().filter(|_| dice.roll(3) == 0).cloned().collect();
            for key in &keys {
                world.remove_pod(key);
            }
        }
        6 => world.requests_until_crash = Some(usize::try_from(dice.roll(20)).expect("small")),
        7 => {
            let kind = ProviderErrorKind::Unavailable;
            let error = ProviderError::new("fake", "create", kind, "no answer");
            world.launch_errors.push(CreateError::Provider(error));
        }
        8 => {
            let instance_type = ["small", "large"][usize::try_from(dice.roll(2)).expect("small")].to_owned();
            let (zone, capacity_type) = ("zone-a".to_owned(), "on-demand".to_owned());
            world.exhausted.insert(OfferingKey { instance_type, zone, capacity_type });
        }
        9 => world.exhausted.clear(),
        10 => {
            if let Some(machine) = world.machines.values().next() {
                let (id, at) = (machine.instance.id.clone(), world.now + Duration::from_mins(2));
                world.provider_events.push(ProviderEvent::Interruption { id, at });
            }
        }
        _ => {
            if let Some(id) = world.machines.keys().next_back().cloned() {
                world.machines.remove(&id);
            }
        }
    }
}

#[test]
fn all_pods_run_in_the_end_and_nothing_is_left_behind() {
    for seed in 0..SEEDS {
        let mut options = EngineOptions::default();
        options.planner.max_instance_types = usize::try_from(seed % 2 + 1).expect("small");
        let mut world = World::with_pool(options);
        let mut dice = Dice(seed);
        for round in 0..40 {
            disturb(&mut world, &mut dice, round);
            world.run(dice.roll(25) + 1);
        }
        world.exhausted.clear();
        world.launch_errors.clear();
        world.requests_until_crash = None;
        world.run(900);
        let found = (world.unbound(), world.nodes.len(), world.machines.len());
        assert_eq!(found, (0, world.claims.len(), world.claims.len()), "seed {seed}: {:#?}", world.log);
        if world.pods.is_empty() {
            assert_eq!(world.claims.len(), 0, "seed {seed}: {:#?}", world.log);
        }
    }
}
