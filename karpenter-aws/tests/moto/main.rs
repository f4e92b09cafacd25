//! The provider and the SDK against moto, an AWS on this machine: see `run.sh`.

#![cfg(feature = "sdk")]

#[path = "../cluster/mod.rs"]
#[allow(dead_code, reason = "the other tests that share it use more of it")]
mod cluster;
mod lives;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use aws_config::{Region, SdkConfig};
use aws_sdk_ec2::config::Credentials;
use karpenter_aws::{
    AwsApi, Clock,
    ec2::{Filter, Tags},
    nodeclass::{AmiFamily, AmiSelectorTerm, Ec2NodeClass, SecurityGroupSelectorTerm, SubnetSelectorTerm},
    provider::{ClusterAccess, Ec2Provider, ProviderOptions},
    sdk::{SdkAws, TokioClock},
};
use karpenter_core::{
    CloudProvider,
    api::{NodeClaim, NodePool, NodeSelectorRequirement, Operator},
    labels,
    provider::{Deletion, Launched},
};
use karpenter_fake::Conformance;

const REGION: &str = "us-west-2";
const DISCOVERY: &str = "karpenter.sh/discovery";
const CLAIM_UID: &str = "karpenter.k8s.aws/nodeclaim-uid";
/// The types that the server has in its price list.
const TYPES: [&str; 4] = ["m5.large", "m5.xlarge", "c5.large", "m6g.large"];

/// A server of its own for each test.
struct Moto {
    process: Child,
    port: u16,
    config: SdkConfig,
    api: SdkAws,
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It is of no more use, whether it ends or not.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    #[expect(clippy::disallowed_methods, reason = "run.sh says which Python has moto")]
    async fn start() -> Self {
        let python = std::env::var("KARPENTER_MOTO_PYTHON").expect("run.sh sets KARPENTER_MOTO_PYTHON");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/moto/server.py");
        let mut command = Command::new(python);
        let mut process = command.arg(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("Python");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let port = line.trim().parse().expect("the port");
        let config = SdkAws::plain_http()
            .region(Region::new(REGION))
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .load()
            .await;
        let api = SdkAws::new(&config);
        Self { process, port, config, api }
    }

    /// Tells the server what to do, over plain HTTP.
    fn tell(&self, path: &str, body: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let head = format!("POST /karpenter/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ");
        write!(stream, "{head}{}\r\n\r\n{body}", body.len()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    async fn provider(&self) -> Ec2Provider {
        self.provider_of(Arc::new(TokioClock), self.class().await)
    }

    fn provider_of(&self, clock: Arc<dyn Clock>, class: Ec2NodeClass) -> Ec2Provider {
        let provider = Ec2Provider::new(Arc::new(self.api.clone()), clock, options());
        provider.apply_class(class);
        provider
    }

    /// Marks what there is in the account so that a class finds it, and makes a role.
    async fn class(&self) -> Ec2NodeClass {
        let subnets = self.api.describe_subnets(&[]).await.expect("answers");
        let groups = self.api.describe_security_groups(&[]).await.expect("answers");
        let ids = subnets.iter().map(|s| s.id.clone()).chain(groups.iter().map(|g| g.id.clone()));
        let tags = Tags::from([(DISCOVERY.to_owned(), "test".to_owned())]);
        self.api.create_tags(&ids.collect::<Vec<_>>(), &tags).await.expect("tagged");
        let iam = aws_sdk_iam::Client::new(&self.config);
        iam.create_role().role_name("node").assume_role_policy_document("{}").send().await.expect("made");
        let images = self.api.describe_images(&["amazon".to_owned()], &[]).await.expect("answers");
        let mut class = Ec2NodeClass::named("default");
        "class-uid".clone_into(&mut class.metadata.uid);
        "node".clone_into(&mut class.spec.role);
        class.spec.ami_family = Some(AmiFamily::Al2023);
        let of = |arch: &str| images.iter().find(|image| image.architecture == arch).map(|i| i.image_id.clone());
        class.spec.ami_selector_terms =
            ["x86_64", "arm64"].into_iter().filter_map(of).map(AmiSelectorTerm::of_id).collect();
        class.spec.subnet_selector_terms = vec![SubnetSelectorTerm { tags: tags.clone(), ..Default::default() }];
        class.spec.security_group_selector_terms = vec![SecurityGroupSelectorTerm { tags, ..Default::default() }];
        class
    }
}

fn options() -> ProviderOptions {
    let cluster = ClusterAccess {
        endpoint: "https://test.example".to_owned(),
        ca_bundle: "Y2E=".to_owned(),
        version: "1.33".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        dns_address: None,
    };
    ProviderOptions::new("test", REGION, cluster)
}

fn pool(kinds: &[&str]) -> NodePool {
    let mut pool = NodePool::named("general");
    pool.spec.template.spec.node_class_ref = Ec2NodeClass::named("default").reference();
    pool.require(NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, kinds.iter().copied()))
}

fn claim(uid: &str, kinds: &[&str]) -> NodeClaim {
    let mut claim = NodeClaim::named(format!("general-{uid}"));
    uid.clone_into(&mut claim.metadata.uid);
    claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), "general".to_owned());
    claim.spec.node_class_ref = Ec2NodeClass::named("default").reference();
    let kinds = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, kinds.iter().copied());
    let types = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, TYPES);
    claim.spec.requirements.extend([kinds, types]);
    claim
}

fn label<'l>(launched: &'l Launched, key: &str) -> &'l str {
    &launched.instance.labels[key]
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn the_provider_does_what_the_engine_may_expect() {
    let moto = Moto::start().await;
    let provider = moto.provider().await;
    for kind in [labels::ON_DEMAND, labels::SPOT] {
        let kit = Conformance::new(Arc::new(provider.clone()), pool(&[kind])).run_id(format!("conformance-{kind}"));
        let report = kit.run(|| tokio::time::sleep(Duration::from_millis(50))).await;
        assert!(report.is_passed(), "{report}");
    }
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn what_has_no_capacity_is_gone_round() {
    let moto = Moto::start().await;
    let provider = moto.provider().await;
    moto.tell("exhausted", r#"[["*", "*", "spot"], ["m6g.large", "*", "*"]]"#);
    let launched = provider.create(&claim("u1", &[labels::SPOT, labels::ON_DEMAND])).await.expect("bought");
    assert_eq!(label(&launched, labels::CAPACITY_TYPE), labels::ON_DEMAND);
    assert_eq!(label(&launched, labels::INSTANCE_TYPE), "c5.large");
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn machines_are_what_their_template_says() {
    let moto = Moto::start().await;
    let provider = moto.provider().await;
    let launched = provider.create(&claim("u1", &[labels::SPOT])).await.expect("bought");
    let filters = vec![Filter::tag(CLAIM_UID, "u1")];
    let query = karpenter_aws::ec2::instance::InstanceQuery { ids: Vec::new(), filters };
    let machines = moto.api.describe_instances(&query).await.expect("answers");
    let [machine] = machines.as_slice() else { panic!("{machines:?}") };
    assert!(launched.instance.id.as_str().ends_with(&machine.id));
    assert!(machine.spot_request_id.is_some());
    assert_eq!(
        (machine.instance_type.as_str(), machine.zone.as_str()),
        (label(&launched, labels::INSTANCE_TYPE), label(&launched, labels::ZONE))
    );
    let resolved = provider.resolve("default").await.expect("known");
    assert_eq!(machine.security_group_ids.len(), resolved.class.status.security_groups.len());
    assert_eq!(machine.instance_profile, resolved.class.status.instance_profile);
    let mut bought = claim("u1", &[labels::SPOT]);
    launched.hydrate(&mut bought);
    assert_eq!(provider.drift(&bought).await, Ok(None));
    provider.finalize_class("default", "class-uid").await.expect("done");
    assert!(moto.api.list_instance_profiles("/karpenter/").await.expect("answers").is_empty());
    assert!(moto.api.describe_launch_templates(&[], &[]).await.expect("answers").is_empty());
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn a_lost_answer_buys_once() {
    let moto = Moto::start().await;
    let provider = moto.provider().await;
    let claims: Vec<NodeClaim> = (0..3).map(|i| claim(&format!("u{i}"), &[labels::ON_DEMAND])).collect();
    moto.tell("lost", r#"{"action": "CreateFleet"}"#);
    let mut bought = BTreeMap::new();
    for claim in &claims {
        let launched = match provider.create(claim).await {
            Ok(launched) => launched,
            Err(_) => provider.create(claim).await.expect("the second time"),
        };
        bought.insert(launched.instance.id.clone(), claim.metadata.uid.clone());
    }
    let listed = provider.list().await.expect("answers");
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|instance| bought.get(&instance.id) == Some(&instance.claim_uid)));
    for id in bought.keys() {
        assert_eq!(provider.delete(id).await, Ok(Deletion::Started));
    }
    assert!(provider.list().await.expect("answers").is_empty());
}

#[tokio::test]
#[ignore = "needs moto; see run.sh"]
async fn messages_come_again_until_they_are_deleted() {
    let moto = Moto::start().await;
    let sqs = aws_sdk_sqs::Client::new(&moto.config);
    sqs.create_queue().queue_name("events").send().await.expect("made");
    let url = moto.api.get_queue_url("events").await.expect("there");
    sqs.send_message().queue_url(&url).message_body("{}").send().await.expect("sent");
    let received = moto.api.receive_messages(&url).await.expect("answers");
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].body.as_deref(), Some("{}"));
    moto.api.delete_message(&url, &received[0].receipt).await.expect("deleted");
    assert!(moto.api.get_queue_url("other").await.expect_err("not there").is_not_found());
}
