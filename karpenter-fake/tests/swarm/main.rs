//! Random clusters with random trouble, at least an hour of each. Half of the engines crash at random moments, and a third have
//! times in which their decisions are stopped before their end.
//!
//! `KARPENTER_SWARM=FIRST:COUNT` says which seeds are run, `0:8` unless said otherwise. Where a rule is broken the seed is
//! printed.
#![cfg(feature = "sim")]

mod rules;
mod setting;
mod trouble;
mod words;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use karpenter_core::api::ObjectKey;
use karpenter_fake::sim::{Account, Rng};

use rules::Rules;
use setting::Setting;

/// For so long workloads change and things go wrong.
const TROUBLE: Duration = Duration::from_mins(65);
/// Then nothing happens for so long, in which every pod finds its place.
const CALM: Duration = Duration::from_mins(25);
/// And in so long all nodes go, once there are no pods.
const EBB: Duration = Duration::from_hours(1);

/// Lives through the life of a seed. The error tells which rules were broken.
fn live(seed: u64, mut rules: Rules) -> Result<Account, String> {
    let rng = Rng::new(seed);
    let mut setting = Setting::new(seed, &mut rng.fork(1));
    let start = setting.live.now();
    let engine = trouble::Engine { crashes: seed % 2 == 1, hurries: seed % 3 == 1 };
    let mut troubles = trouble::plan(&mut rng.fork(2), [start, start + TROUBLE], engine);
    troubles.sort_by_key(|(at, _)| *at);
    let mut rng = rng.fork(3);
    for (at, trouble) in troubles {
        rules.run(&mut setting, at);
        rules.tell(|| format!("{at} {trouble:?}"));
        trouble.happen(&mut setting, &mut rng);
    }
    let calm = setting.live.now();
    trouble::end(&mut setting);
    rules.run(&mut setting, calm + CALM);
    rules.nobody_waits(&mut setting);
    let keys: Vec<ObjectKey> = setting.workloads.iter().map(|workload| workload.key.clone()).collect();
    for key in &keys {
        setting.live.world_mut().delete_workload(key);
    }
    setting.end_replicas();
    let ebb = setting.live.now();
    rules.run(&mut setting, ebb + EBB);
    rules.nothing_is_left(&setting);
    let account = setting.live.account();
    rules.verdict().map(|()| account)
}

/// The first seed and how many there are.
#[expect(clippy::disallowed_methods, reason = "a test is asked for other seeds by its environment")]
fn seeds() -> (u64, u64) {
    let text = std::env::var("KARPENTER_SWARM").unwrap_or_else(|_| "0:8".to_owned());
    let numbers = text.split_once(':').and_then(|(first, count)| Some((first.parse().ok()?, count.parse().ok()?)));
    numbers.unwrap_or_else(|| panic!("KARPENTER_SWARM: {text} is not FIRST:COUNT"))
}

#[test]
fn no_life_breaks_a_rule() {
    let (first, count) = seeds();
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let one_after_the_other = || {
        let mut faults = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if first + count <= seed {
                return faults;
            }
            match catch_unwind(AssertUnwindSafe(|| live(seed, Rules::default()))) {
                Ok(Ok(_)) => {}
                Ok(Err(fault)) => faults.push(format!("seed {seed}: {fault}")),
                Err(_) => faults.push(format!("seed {seed} panicked")),
            }
        }
    };
    let faults: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one_after_the_other)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("its panics were caught")).collect()
    });
    assert!(faults.is_empty(), "{} of {count} seeds broke rules:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_seed_gives_the_same_life_again() {
    assert_eq!(live(3, Rules::default()), live(3, Rules::default()));
}

/// `KARPENTER_SWARM=SEED:1 cargo test --features sim --test swarm -- --ignored --nocapture` tells what happens in the
/// life of a seed.
#[test]
#[ignore = "for people who look for the cause of a fault"]
fn tell() {
    assert_eq!(live(seeds().0, Rules::aloud()).err(), None);
}
