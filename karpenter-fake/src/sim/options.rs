use std::{ops::RangeInclusive, time::Duration};

/// How long things take in a [`World`](super::World), and how often calls go wrong. Of a range each value is as likely.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorldOptions {
    /// From the binding of a pod until it is ready.
    pub pod_start_delay: RangeInclusive<Duration>,
    /// From when a pod is asked to end until it has; its grace period at most.
    pub pod_stop_delay: RangeInclusive<Duration>,
    /// How long pods of Jobs are kept that have succeeded.
    pub finished_pod_ttl: Duration,
    /// From when a node joins until it is ready.
    pub node_ready_delay: RangeInclusive<Duration>,
    /// From when a node is ready until its devices are reported.
    pub device_delay: RangeInclusive<Duration>,
    /// From when a node is ready until its startup taints are taken away.
    pub startup_taint_delay: RangeInclusive<Duration>,
    /// After how long without a sign of life a node is not ready (`--node-monitor-grace-period`).
    pub node_monitor_grace_period: Duration,
    /// From when it is known to which node a pod goes until the volumes are made that it is the first to mount.
    pub volume_make_delay: RangeInclusive<Duration>,
    /// From when the last pod of a node that mounts a volume is gone until the volume is detached.
    pub volume_detach_delay: RangeInclusive<Duration>,
    /// How long the pods of a node that is gone are kept.
    pub pod_gc_delay: Duration,
    /// How long a call to the API server takes.
    pub api_latency: RangeInclusive<Duration>,
    /// How long a call to the cloud takes.
    pub cloud_latency: RangeInclusive<Duration>,
    /// How many calls to the cloud in a million are done without an answer.
    pub lost_calls_ppm: u32,
    /// How many calls to the cloud in a million take [`WorldOptions::slow_latency`].
    pub slow_calls_ppm: u32,
    /// How long a slow call takes, and how long a caller waits for an answer that was lost.
    pub slow_latency: Duration,
}

impl Default for WorldOptions {
    /// A healthy cluster and a healthy cloud.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            pod_start_delay: seconds(1)..=seconds(5),
            pod_stop_delay: seconds(1)..=seconds(10),
            finished_pod_ttl: seconds(60),
            node_ready_delay: seconds(5)..=seconds(15),
            device_delay: seconds(5)..=seconds(20),
            startup_taint_delay: seconds(2)..=seconds(10),
            node_monitor_grace_period: seconds(50),
            volume_make_delay: seconds(1)..=seconds(10),
            volume_detach_delay: seconds(2)..=seconds(20),
            pod_gc_delay: seconds(60),
            api_latency: Duration::from_millis(5)..=Duration::from_millis(50),
            cloud_latency: Duration::from_millis(200)..=seconds(2),
            lost_calls_ppm: 0,
            slow_calls_ppm: 0,
            slow_latency: seconds(60),
        }
    }
}
