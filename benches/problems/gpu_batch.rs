//! Batch jobs on machines with GPUs.

use karpenter::fake::catalog::GPU;
use serde_json::{Value, json};

use super::{APP, Numbers, Problem, pod, requests};

/// A kind of job: how many of a hundred jobs are of it, and what one asks for.
struct Job {
    percent: u64,
    cpu_milli: u64,
    memory_mib: u64,
    gpus: u64,
}

/// Most jobs want one GPU and little else, some want none, and few want a whole machine.
const JOBS: [Job; 9] = [
    Job { percent: 32, cpu_milli: 4_000, memory_mib: 15_258, gpus: 1 },
    Job { percent: 20, cpu_milli: 6_000, memory_mib: 12_288, gpus: 1 },
    Job { percent: 12, cpu_milli: 2_000, memory_mib: 8_192, gpus: 1 },
    Job { percent: 8, cpu_milli: 7_500, memory_mib: 28_672, gpus: 1 },
    Job { percent: 6, cpu_milli: 12_000, memory_mib: 49_152, gpus: 2 },
    Job { percent: 4, cpu_milli: 28_000, memory_mib: 114_688, gpus: 4 },
    Job { percent: 3, cpu_milli: 60_000, memory_mib: 229_376, gpus: 8 },
    Job { percent: 10, cpu_milli: 3_152, memory_mib: 4_096, gpus: 0 },
    Job { percent: 5, cpu_milli: 32_000, memory_mib: 65_536, gpus: 0 },
];

/// `count` pods of nine shapes in no order, as a trace has them.
pub(crate) fn problem(count: usize) -> Problem {
    let mut numbers = Numbers(1);
    Problem::of_pods((0..count).map(|number| member(number, job(numbers.below(100)))))
}

/// The kind of the job at this place among a hundred.
fn job(place: u64) -> &'static Job {
    let mut end = 0;
    let found = JOBS.iter().find(|job| {
        end += job.percent;
        place < end
    });
    found.expect("the kinds are a hundred of a hundred")
}

fn member(number: usize, job: &Job) -> Value {
    let mut requests = requests(job.cpu_milli, job.memory_mib);
    if job.gpus > 0 {
        requests[GPU] = job.gpus.to_string().into();
    }
    pod(&format!("job-{number}"), &json!({APP: "job"}), &requests, json!({}))
}
