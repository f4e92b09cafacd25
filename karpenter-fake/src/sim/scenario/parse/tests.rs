use std::time::Duration;

use karpenter_core::{api::ObjectKey, labels};

use super::*;
use crate::sim::WorkloadKind;

fn one(line: &str) -> Command {
    let mut scenario = Scenario::parse(line, "f").unwrap();
    assert_eq!(scenario.statements.len(), 1, "{line}");
    scenario.statements.remove(0).command
}

fn web() -> ObjectKey {
    ObjectKey::new("default", "web")
}

#[test]
fn settings_come_first() {
    let text = "# all settings\nseed 7\ncatalog types.json\nstart 2026-03-02T06:00:00Z\noption batch-idle 2s\n\
        option disruption off\noption slack 0.1\noption min-spot-types 1\nrepair BadDisk after 10m # quick\n";
    let setup = Scenario::parse(text, "f").unwrap().setup;
    assert_eq!((setup.seed, setup.catalog), (7, Some(("types.json".to_owned(), 3))));
    assert_eq!(setup.start.to_string(), "2026-03-02T06:00:00Z");
    assert_eq!((setup.options.batch_idle, setup.options.disruption_period), (Duration::from_secs(2), None));
    assert!((setup.options.planner.slack - 0.1).abs() < 1e-9);
    assert_eq!(
        setup.options.repair_policies[0],
        RepairPolicy::new("BadDisk", ConditionStatus::True, Duration::from_mins(10))
    );
}

#[test]
fn pods_in_a_few_words() {
    let Command::Run(workload) =
        one("add-pods shop/web 30 cpu=500m nvidia.com/gpu=1 capacity-type=spot do-not-disrupt")
    else {
        panic!()
    };
    assert_eq!((workload.key.to_string().as_str(), workload.replicas), ("shop/web", 30));
    assert_eq!(workload.template.metadata.labels["app"], "web");
    assert_eq!(workload.template.metadata.annotations[labels::DO_NOT_DISRUPT], "true");
    assert_eq!(workload.template.spec.node_selector[labels::CAPACITY_TYPE], "spot");
    let requests = &workload.template.spec.containers[0].resources.requests;
    assert_eq!(requests.to_string(), "cpu 500m, nvidia.com/gpu 1");
    let Command::Run(job) = one("add-job batch 3 20m cpu=2") else { panic!() };
    assert_eq!((job.kind, job.replicas), (WorkloadKind::Job(Duration::from_mins(20)), 3));
    for line in ["add-pods db 3 kind=StatefulSet memory=1Gi", "add-pods db 3 memory=1Gi kind=StatefulSet"] {
        let Command::Run(set) = one(line) else { panic!() };
        assert_eq!(set.kind, WorkloadKind::StatefulSet, "{line}");
    }
    let Command::RunDaemons(daemons) = one("add-daemons kube-system/logs cpu=50m") else { panic!() };
    assert_eq!((daemons.metadata.namespace.as_str(), daemons.metadata.name.as_str()), ("kube-system", "logs"));
}

fn any(capacity_type: Option<&str>, pool: Option<&str>) -> NodeChoice {
    NodeChoice::Any { capacity_type: capacity_type.map(str::to_owned), pool: pool.map(str::to_owned) }
}

fn count(what: Countable, comparison: Comparison, number: u64) -> Command {
    Command::Expect(Expectation::Count { what, comparison, number })
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

fn offerings(instance_type: Option<&str>, zone: Option<&str>, capacity_type: Option<&str>) -> OfferingPattern {
    OfferingPattern {
        instance_type: instance_type.map(str::to_owned),
        zone: zone.map(str::to_owned),
        capacity_type: capacity_type.map(str::to_owned),
    }
}

#[test]
fn commands() {
    for (line, command) in [
        ("scale web 4", Command::Scale { workload: web(), replicas: 4 }),
        ("tick 10m", Command::Tick(minutes(10))),
        ("until 22:00", Command::Until(super::super::Moment::OfDay(Duration::from_hours(22)))),
        ("crash", Command::Crash),
        ("show # all", Command::Show),
        ("delete nodeclaim/general-1", Command::Delete(Doomed::NodeClaim("general-1".into()))),
        ("delete a spot node", Command::Delete(Doomed::Node(any(Some("spot"), None)))),
        ("explain pod/web", Command::Explain(Subject::Pod(web()))),
        ("explain an on-demand node", Command::Explain(Subject::Node(any(Some("on-demand"), None)))),
        (
            "protect web min-available=80%",
            Command::Protect { workload: web(), rule: Protection::MinAvailable(IntOrPercent::Percent(80)) },
        ),
    ] {
        assert_eq!(one(line), command, "{line}");
    }
}

#[test]
fn faults() {
    for (line, command) in [
        (
            "ice m5.large us-east-1a spot for 3m",
            Command::Fault(Fault::SoldOut {
                offerings: offerings(Some("m5.large"), Some("us-east-1a"), Some("spot")),
                duration: minutes(3),
            }),
        ),
        (
            "ice * * spot for 3m",
            Command::Fault(Fault::SoldOut { offerings: offerings(None, None, Some("spot")), duration: minutes(3) }),
        ),
        (
            "price m5.large x2",
            Command::Fault(Fault::Price {
                offerings: offerings(Some("m5.large"), None, None),
                change: PriceChange::Times(2.0),
            }),
        ),
        (
            "price m5.large us-east-1a x2",
            Command::Fault(Fault::Price {
                offerings: offerings(Some("m5.large"), Some("us-east-1a"), None),
                change: PriceChange::Times(2.0),
            }),
        ),
        (
            "price * spot x2",
            Command::Fault(Fault::Price {
                offerings: offerings(None, None, Some("spot")),
                change: PriceChange::Times(2.0),
            }),
        ),
        (
            "price x1.large * spot =0.5",
            Command::Fault(Fault::Price {
                offerings: offerings(Some("x1.large"), None, Some("spot")),
                change: PriceChange::To(Price::per_hour(0.5).unwrap()),
            }),
        ),
        (
            "interrupt a spot node",
            Command::Fault(Fault::Interrupt { node: any(Some("spot"), None), notice: minutes(2) }),
        ),
        (
            "interrupt node-1 notice=30s",
            Command::Fault(Fault::Interrupt {
                node: NodeChoice::Named("node-1".into()),
                notice: Duration::from_secs(30),
            }),
        ),
        (
            "kill a node of general silently",
            Command::Fault(Fault::Kill { node: any(None, Some("general")), is_silent: true }),
        ),
        (
            "unhealthy a node Ready=False",
            Command::Fault(Fault::Unhealthy {
                node: any(None, None),
                condition: "Ready".into(),
                status: ConditionStatus::False,
            }),
        ),
        (
            "withhold-memory m 1Mi",
            Command::Fault(Fault::WithholdMemory { instance_type: "m".into(), memory_bytes: 1 << 20 }),
        ),
        ("lose-answers 3", Command::Fault(Fault::LoseAnswers(3))),
        ("throttle 2m", Command::Fault(Fault::Throttle(minutes(2)))),
        ("lose-watch 1m", Command::Fault(Fault::LoseWatch(minutes(1)))),
    ] {
        assert_eq!(one(line), command, "{line}");
    }
}

#[test]
fn expectations() {
    for (line, command) in [
        ("expect nodes 3", count(Countable::Nodes { pool: None }, Comparison::Equal, 3)),
        ("expect nodes of spot <= 3", count(Countable::Nodes { pool: Some("spot".into()) }, Comparison::AtMost, 3)),
        (
            "expect nodes with version=2 3",
            count(Countable::NodesWith { key: "version".into(), value: "2".into() }, Comparison::Equal, 3),
        ),
        ("expect pods running 30", count(Countable::Running { workload: None }, Comparison::Equal, 30)),
        ("expect pods of web running 30", count(Countable::Running { workload: Some(web()) }, Comparison::Equal, 30)),
        (
            "expect disrupted Drifted >= 1",
            count(Countable::Disrupted { reason: Some(DisruptionReason::Drifted) }, Comparison::AtLeast, 1),
        ),
        ("expect disrupted 0", count(Countable::Disrupted { reason: None }, Comparison::Equal, 0)),
        (
            "expect bill <= 1.5",
            Command::Expect(Expectation::Bill { comparison: Comparison::AtMost, micro_dollars: 1_500_000 }),
        ),
        ("expect no-breaches", Command::Expect(Expectation::NoBreaches)),
    ] {
        assert_eq!(one(line), command, "{line}");
    }
}

#[test]
fn manifests_keep_their_lines() {
    let text = "seed 1\napply\n  kind: Pod\n\n  metadata: {}\nshow\napply pool.yaml\n";
    let scenario = Scenario::parse(text, "f").unwrap();
    let block = Manifests::Inline("\n\nkind: Pod\n\nmetadata: {}\n".to_owned());
    assert_eq!(scenario.statements[1].command, Command::Apply(block));
    assert_eq!(scenario.statements[1].text, "apply\n  kind: Pod\n  metadata: {}");
    assert_eq!((scenario.statements[2].line, &scenario.statements[2].command), (6, &Command::Show));
    assert_eq!(scenario.statements[3].command, Command::Apply(Manifests::File("pool.yaml".to_owned())));
}

#[test]
fn mistakes_are_named_with_their_line_and_word() {
    for (text, message) in [
        ("tik 10m", "f: line 1: `tik`: there is no such command; is `tick` meant?"),
        ("frobnicate", "f: line 1: `frobnicate`: there is no such command"),
        ("\n\nscale web", "f: line 3: expected a number"),
        ("scale web 4 now", "f: line 1: `now`: nothing more is expected in this line"),
        ("tick ten", "f: line 1: `ten`: expected a duration such as 90s, 10m or 1h30m"),
        ("tick 9999d", "f: line 1: `9999d`: 366 days at most"),
        ("add-pods web 1000000 cpu=1", "f: line 1: `1000000`: 200000 at most"),
        ("add-pods web 1 cpu=1 cpu=3", "f: line 1: `cpu=3`: nothing more is expected in this line"),
        ("withhold-memory m -500Mi", "f: line 1: `-500Mi`: expected an amount of memory such as 500Mi"),
        ("expect disrupted Drfted 0", "f: line 1: `Drfted`: expected Underutilized, Empty or Drifted"),
        ("ice m * spot 3m", "f: line 1: `3m`: expected the word `for`"),
        ("show\nseed 7", "f: line 2: `seed`: it must come before the first command"),
        ("  show", "f: line 1: `show`: the line is indented, but there is no `apply` above it"),
        ("apply", "f: line 1: expected a file, or manifests indented below"),
        ("explain pod/", "f: line 1: expected a name such as web or shop/web"),
        ("price m x-1", "f: line 1: expected a change of price such as x2 or =0.40"),
        ("add-pods web 1 cpu=lots", "f: line 1: `web`: "),
        ("add-pods web 1 cpus=1", "f: line 1: `cpus=1`: expected what a pod asks for"),
        ("expect happiness 3", "f: line 1: `happiness`: expected what is counted"),
        ("add-pods web 1 cpu=1 kind=Job", "f: line 1: `Job`: expected Deployment or StatefulSet"),
        ("add-daemons web kind=StatefulSet", "f: line 1: `kind=StatefulSet`: expected what a pod asks for"),
        ("unhealthy a node Ready=Maybe", "f: line 1: `Ready=Maybe`: expected a condition"),
    ] {
        let error = Scenario::parse(text, "f").expect_err(text).to_string();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}
