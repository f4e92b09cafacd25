//! The engine drives the provider, and the provider the server.

use std::{collections::BTreeSet, sync::Arc};

use aws_smithy_types::base64;
use karpenter_aws::{
    AwsApi, Clock,
    ec2::{
        Filter,
        instance::{Ec2Instance, InstanceQuery},
    },
    interruption::InterruptionQueue,
    mem::ManualClock,
    nodeclass::Ec2NodeClass,
    sdk::TokioClock,
};
use karpenter_core::{
    CloudProvider,
    api::{NodeSelectorRequirement, Operator},
    labels,
};

use crate::{
    CLAIM_UID, Moto, TYPES, claim,
    cluster::{Cluster, Machines},
    pool,
};

impl Machines for Moto {
    async fn there(&self) -> Vec<Ec2Instance> {
        let query =
            InstanceQuery { ids: Vec::new(), filters: vec![Filter::tag("kubernetes.io/cluster/test", "owned")] };
        let machines = self.api.describe_instances(&query).await.expect("answers");
        machines.into_iter().filter(|machine| !machine.state.is_ending()).collect()
    }
}

/// A cluster whose clock starts now, with a pool of machines of either kind, and its class.
async fn cluster() -> (Cluster<Moto>, Ec2NodeClass) {
    let moto = Moto::start().await;
    let class = moto.class().await;
    let clock = ManualClock::at(TokioClock.now());
    let provider = moto.provider_of(Arc::new(clock.clone()), class.clone());
    let types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, TYPES);
    let pool = pool(&[labels::SPOT, labels::ON_DEMAND]).require(types);
    (Cluster::with(moto, clock, provider, pool), class)
}

async fn ids(cluster: &Cluster<Moto>) -> BTreeSet<String> {
    cluster.aws.there().await.into_iter().map(|machine| machine.id).collect()
}

/// What the machines of a template run first.
async fn user_data(moto: &Moto, template: &str) -> String {
    let client = aws_sdk_ec2::Client::new(&moto.config);
    let answer = client.describe_launch_template_versions().launch_template_id(template).send().await.expect("answers");
    let data = answer.launch_template_versions()[0].launch_template_data().expect("has data");
    let text = base64::decode(data.user_data().expect("has user data")).expect("base64");
    String::from_utf8(text).expect("text")
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn pods_get_machines_and_nothing_stays_of_them() {
    let (mut cluster, class) = cluster().await;
    cluster.add_pods(6, "900m");
    cluster.run(90).await;
    assert_eq!(cluster.unbound(), 0);
    let status = cluster.provider.resolve("default").await.expect("known").class.status.clone();
    let machines = cluster.aws.there().await;
    assert_eq!((machines.len(), cluster.nodes.len()), (cluster.claims.len(), cluster.claims.len()));
    for machine in &machines {
        let claim = cluster.claims.values().find(|claim| claim.metadata.uid == machine.tags[CLAIM_UID]);
        let claim = claim.expect("bought for it");
        let label = |key: &str| claim.metadata.labels[key].as_str();
        assert_eq!(label(labels::INSTANCE_TYPE), machine.instance_type);
        assert_eq!(label(labels::ZONE), machine.zone);
        assert_eq!(label(labels::CAPACITY_TYPE) == labels::SPOT, machine.spot_request_id.is_some());
        assert_eq!(machine.tags[labels::NODE_POOL], "general");
        assert_eq!(machine.tags["karpenter.k8s.aws/ec2nodeclass"], class.metadata.name);
        assert_eq!(machine.instance_profile, status.instance_profile);
        let groups = status.security_groups.iter().map(|group| &group.id);
        assert!(machine.security_group_ids.iter().eq(groups), "{machine:?}");
        assert!(status.subnets.iter().any(|subnet| subnet.id == machine.subnet_id && subnet.zone == machine.zone));
    }
    let templates = cluster.aws.api.describe_launch_templates(&[], &[]).await.expect("answers");
    assert!(!templates.is_empty());
    for template in templates {
        let text = user_data(&cluster.aws, &template.id).await;
        assert!(text.contains("node.eks.aws/v1alpha1") && text.contains("https://test.example"), "{text}");
    }
    cluster.remove_all_pods();
    cluster.run(300).await;
    assert_eq!((ids(&cluster).await.len(), cluster.nodes.len(), cluster.claims.len()), (0, 0, 0));
    cluster.provider.finalize_class("default", &class.metadata.uid).await.expect("done");
    assert!(cluster.aws.api.describe_launch_templates(&[], &[]).await.expect("answers").is_empty());
    assert!(cluster.aws.api.list_instance_profiles("/karpenter/").await.expect("answers").is_empty());
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn the_next_offering_is_bought_within_a_second() {
    let (mut cluster, _) = cluster().await;
    cluster.aws.tell("exhausted", r#"[["*", "*", "spot"], ["m6g.large", "*", "*"]]"#);
    cluster.add_pods(1, "900m");
    while cluster.claims.is_empty() {
        cluster.run(1).await;
    }
    cluster.run(1).await;
    let machines = cluster.aws.there().await;
    let [machine] = machines.as_slice() else { panic!("{machines:?}") };
    assert_eq!((machine.instance_type.as_str(), &machine.spot_request_id), ("c5.large", &None));
    cluster.run(60).await;
    assert_eq!(cluster.unbound(), 0);
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn a_machine_that_a_message_takes_back_is_replaced_before_it_is_gone() {
    let (mut cluster, _) = cluster().await;
    let sqs = aws_sdk_sqs::Client::new(&cluster.aws.config);
    let queue = sqs.create_queue().queue_name("events").send().await.expect("made");
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let old = ids(&cluster).await.first().expect("bought").clone();
    let text = format!(
        r#"{{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",
        "time":"{}","detail":{{"instance-id":"{old}"}}}}"#,
        cluster.now()
    );
    let url = queue.queue_url().expect("has one");
    sqs.send_message().queue_url(url).message_body(text).send().await.expect("sent");
    let mut queue = InterruptionQueue::new(Arc::new(cluster.aws.api.clone()), cluster.provider.clone(), "events");
    assert_eq!(queue.poll().await.expect("answers").len(), 1);
    let before = ids(&cluster).await;
    let (mut is_replaced, mut seconds) = (false, 0);
    loop {
        cluster.run(1).await;
        seconds += 1;
        let there = ids(&cluster).await;
        is_replaced |= !there.is_subset(&before);
        if !there.contains(&old) {
            break;
        }
        assert!(seconds < 120, "EC2 takes it back by itself");
    }
    assert!(is_replaced, "gone after {seconds} s without another machine");
    cluster.run(90).await;
    assert_eq!(cluster.unbound(), 0);
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn a_machine_of_no_claim_is_collected() {
    let (mut cluster, _) = cluster().await;
    cluster.add_pods(1, "900m");
    cluster.run(60).await;
    let own = ids(&cluster).await;
    cluster.provider.create(&claim("nobody", &[labels::ON_DEMAND])).await.expect("bought");
    assert_eq!(ids(&cluster).await.len(), own.len() + 1);
    cluster.run(300).await;
    assert_eq!((ids(&cluster).await, cluster.unbound()), (own, 0));
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn machines_of_a_class_that_changes_are_replaced() {
    let (mut cluster, mut class) = cluster().await;
    cluster.add_pods(2, "900m");
    cluster.run(60).await;
    let old = ids(&cluster).await;
    class.spec.user_data = Some("#!/bin/bash\necho ready".to_owned());
    cluster.provider.apply_class(class);
    cluster.run(900).await;
    let new = ids(&cluster).await;
    assert!(!new.is_empty() && new.is_disjoint(&old), "{old:?} {new:?}");
    assert_eq!(cluster.unbound(), 0);
}
