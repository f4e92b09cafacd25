//! Volumes and what drivers attach.

use karpenter_core::{
    Snapshot, SnapshotBuilder,
    api::{CsiNode, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, VolumeBindingMode},
    labels,
};

use super::{
    helpers::{breaks, claim, of_claims, onto, passes, pod, pod_on, two_nodes, violations, with_pool},
    read,
};

const BOUND: &str = r#""pv.kubernetes.io/bind-completed":"yes""#;

fn volume_claim(name: &str, annotations: &str, spec: &str) -> PersistentVolumeClaim {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","annotations":{{{annotations}}}}},"spec":{{{spec}}}}}"#
    ))
}

/// A claim of the class `w`.
fn waiting(name: &str) -> PersistentVolumeClaim {
    volume_claim(name, "", r#""storageClassName":"w""#)
}

fn class(name: &str, more: &str) -> StorageClass {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}"}},"provisioner":"d","volumeBindingMode":"WaitForFirstConsumer"{more}}}"#
    ))
}

fn volume(name: &str, spec: &str) -> PersistentVolume {
    read(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#))
}

/// The part of a volume that ties it to nodes with a label.
fn tied_to(key: &str, value: &str) -> String {
    format!(
        r#""nodeAffinity":{{"required":{{"nodeSelectorTerms":[{{"matchExpressions":[{{"key":"{key}","operator":"In","values":["{value}"]}}]}}]}}}}"#
    )
}

fn mounting(name: &str, claims: &[&str]) -> Pod {
    let volume = |claim: &&str| format!(r#"{{"name":"{claim}","persistentVolumeClaim":{{"claimName":"{claim}"}}}}"#);
    let volumes: Vec<String> = claims.iter().map(volume).collect();
    pod(name, "", &format!(r#""volumes":[{}]"#, volumes.join(",")))
}

fn csi_node(count: u32) -> CsiNode {
    read(&format!(
        r#"{{"metadata":{{"name":"n1"}},"spec":{{"drivers":[{{"name":"d","allocatable":{{"count":{count}}}}}]}}}}"#
    ))
}

fn cluster() -> SnapshotBuilder {
    two_nodes().storage_classes([class("w", "")])
}

/// The claim `v` with the volume `p`, which is so.
fn bound(spec: &str) -> SnapshotBuilder {
    let claim = volume_claim("v", BOUND, r#""volumeName":"p""#);
    cluster().volume_claims([claim]).volumes([volume("p", spec)]).pods(mounting("a", &["v"]))
}

#[test]
fn claims_must_be_there_and_whole() {
    let plan = onto([("n1", &["a"])]);
    let mut at_once = class("now", "");
    at_once.volume_binding_mode = VolumeBindingMode::Immediate;
    let with = |claim: Option<PersistentVolumeClaim>| {
        let builder = cluster().storage_classes([at_once.clone()]);
        violations(builder.volume_claims(claim).pods(mounting("a", &["v"])), &plan)
    };
    let mut going = waiting("v");
    going.metadata.deletion_timestamp = Some(karpenter_core::Timestamp::default());
    let mut lost = waiting("v");
    lost.status.phase = "Lost".to_owned();
    for (claim, obstacle) in [
        (None, "there is no such claim"),
        (Some(going), "it is lost or being deleted"),
        (Some(lost), "it is lost or being deleted"),
        (Some(volume_claim("v", "", r#""volumeName":"p""#)), "its binding is not complete"),
        (Some(volume_claim("v", BOUND, r#""volumeName":"p""#)), "its volume does not exist"),
        (Some(volume_claim("v", "", "")), "it has neither a volume nor a class"),
        (Some(volume_claim("v", "", r#""storageClassName":"x""#)), "it has neither a volume nor a class"),
        (
            Some(volume_claim("v", "", r#""storageClassName":"now""#)),
            "it is not bound, and its class does not wait for pods",
        ),
    ] {
        assert_eq!(with(claim), [format!("default/a on n1: claim default/v: {obstacle}")]);
    }
    assert_eq!(with(Some(waiting("v"))), [""; 0]);
    // A claim of another namespace is another claim.
    let mut elsewhere = waiting("v");
    elsewhere.metadata.namespace = "o".to_owned();
    assert_eq!(with(Some(elsewhere)).len(), 1);
}

#[test]
fn claims_of_ephemeral_volumes_are_named_after_pod_and_volume() {
    let scratch = || pod("a", "", r#""volumes":[{"name":"scratch","ephemeral":{}}]"#);
    let with = |name: &str| cluster().volume_claims([waiting(name)]).pods(scratch());
    passes(with("a-scratch"), &onto([("n1", &["a"])]));
    let to_come = "default/a on n1: claim default/a-scratch: it has neither a volume nor a class";
    breaks(with("scratch"), &onto([("n1", &["a"])]), to_come);
}

#[test]
fn pods_go_where_their_volumes_are() {
    let in_b = || bound(&format!(r#""csi":{{"driver":"d"}},{}"#, tied_to(labels::ZONE, "b")));
    passes(in_b(), &onto([("n2", &["a"])]));
    let far = "claim default/v: no term of its volume's node affinity is met";
    breaks(in_b(), &onto([("n1", &["a"])]), &format!("default/a on n1: {far}"));
    passes(with_pool(in_b()), &of_claims([claim(&["a"], "b")]));
    breaks(with_pool(in_b()), &of_claims([claim(&["a"], "")]), &format!("default/a on claim 0 as spot m in a: {far}"));
    passes(bound(r#""csi":{"driver":"d"}"#), &onto([("n1", &["a"])]));
    let on_n2 = || bound(&format!(r#""csi":{{"driver":"d"}},{}"#, tied_to(labels::HOSTNAME, "n2")));
    breaks(on_n2(), &onto([("n1", &["a"])]), &format!("default/a on n1: {far}"));
    passes(on_n2(), &onto([("n2", &["a"])]));
}

#[test]
fn the_labels_of_volumes_tell_their_zones() {
    let beta = "failure-domain.beta.kubernetes.io/zone";
    let with = |zone_labels: &[(&str, &str)], spec: &str| {
        let mut labelled = volume("p", spec);
        labelled.metadata.labels.extend(zone_labels.iter().map(|(key, zones)| ((*key).into(), (*zones).into())));
        let claim = volume_claim("v", BOUND, r#""volumeName":"p""#);
        with_pool(cluster().volume_claims([claim]).volumes([labelled]).pods(mounting("a", &["v"])))
    };
    let csi = r#""csi":{"driver":"d"}"#;
    let (on_n1, elsewhere) = (|| onto([("n1", &["a"])]), "claim default/v: its volume is in another zone");
    for zone_labels in [&[(labels::ZONE, "b")][..], &[(beta, "b__c")], &[(labels::ZONE, "a__b"), (beta, "b")]] {
        breaks(with(zone_labels, csi), &on_n1(), &format!("default/a on n1: {elsewhere}"));
        passes(with(zone_labels, csi), &onto([("n2", &["a"])]));
        passes(with(zone_labels, csi), &of_claims([claim(&["a"], "b")]));
        breaks(
            with(zone_labels, csi),
            &of_claims([claim(&["a"], "")]),
            &format!("default/a on claim 0 as spot m in a: {elsewhere}"),
        );
    }
    passes(with(&[(labels::ZONE, "b__ a")], csi), &on_n1());
    passes(with(&[(labels::ZONE, "b__")], csi), &on_n1());
    // The node affinity must be met too.
    let tied = format!("{csi},{}", tied_to(labels::HOSTNAME, "n2"));
    let far = "default/a on n1: claim default/v: no term of its volume's node affinity is met";
    breaks(with(&[(labels::ZONE, "a")], &tied), &on_n1(), far);
}

#[test]
fn claims_that_name_no_class_are_of_the_default_one() {
    let default = |name: &str, created: &str, mode: &str| -> StorageClass {
        let meta = format!(
            r#""name":"{name}","creationTimestamp":"{created}","annotations":{{"storageclass.kubernetes.io/is-default-class":"true"}}"#
        );
        read(&format!(r#"{{"metadata":{{{meta}}},"provisioner":"d","volumeBindingMode":"{mode}"}}"#))
    };
    let (waits, at_once) = ("WaitForFirstConsumer", "Immediate");
    let with = |classes: Vec<StorageClass>, spec: &str| {
        let builder = cluster().storage_classes(classes).csi_nodes([csi_node(1)]);
        builder.volume_claims([volume_claim("v", "", spec)]).pods(mounting("a", &["v"]))
    };
    let on_n1 = || onto([("n1", &["a"])]);
    passes(with(vec![default("x", "2028-01-01T00:00:00Z", waits)], ""), &on_n1());
    // The newest is taken, of equals the first by name.
    let (old, new) = ("2028-01-01T00:00:00Z", "2028-01-02T00:00:00Z");
    passes(with(vec![default("x", old, at_once), default("y", new, waits)], ""), &on_n1());
    let not_yet = "default/a on n1: claim default/v: it is not bound, and its class does not wait for pods";
    breaks(with(vec![default("x", new, at_once), default("y", new, waits)], ""), &on_n1(), not_yet);
    let none = "default/a on n1: claim default/v: it has neither a volume nor a class";
    breaks(with(vec![default("x", old, waits)], r#""storageClassName":"""#), &on_n1(), none);
    // Its driver attaches the volume.
    let second = with(vec![default("x", old, waits)], "").volume_claims([volume_claim("w", "", "")]);
    let both = onto([("n1", &["a", "b"])]);
    breaks(second.pods(mounting("b", &["w"])), &both, "n1: d: 0 volumes and 2 more, limit 1");
}

#[test]
fn volumes_of_a_host_let_their_pods_go() {
    for kind in ["local", "hostPath"] {
        let on_n2 = bound(&format!(r#""{kind}":{{"path":"/x"}},{}"#, tied_to(labels::HOSTNAME, "n2")));
        passes(on_n2, &onto([("n1", &["a"])]));
        let in_b = bound(&format!(r#""{kind}":{{"path":"/x"}},{}"#, tied_to(labels::ZONE, "b")));
        assert_eq!(violations(in_b, &onto([("n1", &["a"])])).len(), 1, "{kind}");
    }
}

#[test]
fn classes_make_volumes_in_their_topologies() {
    let only = |terms: &str| {
        let class = class("z", &format!(r#","allowedTopologies":[{terms}]"#));
        let claim = volume_claim("v", "", r#""storageClassName":"z""#);
        cluster().storage_classes([class]).volume_claims([claim]).pods(mounting("a", &["v"]))
    };
    let zone =
        |zone: &str| format!(r#"{{"matchLabelExpressions":[{{"key":"{}","values":["{zone}","x"]}}]}}"#, labels::ZONE);
    passes(only(&zone("a")), &onto([("n1", &["a"])]));
    passes(only(&format!("{},{}", zone("b"), zone("a"))), &onto([("n1", &["a"])]));
    let elsewhere = "default/a on n1: claim default/v: its class makes no volumes there";
    breaks(only(&zone("b")), &onto([("n1", &["a"])]), elsewhere);
    breaks(only("{}"), &onto([("n1", &["a"])]), elsewhere);
}

#[test]
fn volumes_that_are_made_by_hand_are_where_they_are() {
    let by_hand = |volumes: &[(&str, &str)], source: &str| {
        let mut class = class("hand", "");
        class.provisioner = "kubernetes.io/no-provisioner".to_owned();
        let claim = volume_claim("v", "", r#""storageClassName":"hand","resources":{"requests":{"storage":"2Gi"}}"#);
        let offer = |(host, size): &(&str, &str)| {
            let spec = format!(r#""storageClassName":"hand","capacity":{{"storage":"{size}"}}{source}"#);
            volume(host, &format!("{spec},{}", tied_to(labels::HOSTNAME, host)))
        };
        let builder = cluster().storage_classes([class]).volume_claims([claim]).pods(mounting("a", &["v"]));
        builder.volumes(volumes.iter().map(offer))
    };
    let on_n1 = || onto([("n1", &["a"])]);
    passes(by_hand(&[("n1", "2Gi"), ("n2", "1Gi")], ""), &on_n1());
    let far = "default/a on n1: claim default/v: no term of its volume's node affinity is met";
    breaks(by_hand(&[("n1", "1Gi"), ("n2", "2Gi")], ""), &on_n1(), far);
    // Others may be made on the node yet.
    passes(by_hand(&[("n1", "1Gi"), ("n2", "2Gi")], r#","local":{}"#), &on_n1());
    passes(by_hand(&[("n1", "1Gi")], ""), &on_n1());
}

#[test]
fn a_volume_is_made_for_one_node() {
    let for_node = |node: &str| {
        let selected = format!(r#""volume.kubernetes.io/selected-node":"{node}""#);
        let claim = volume_claim("v", &selected, r#""storageClassName":"w""#);
        with_pool(cluster().volume_claims([claim]).pods(mounting("a", &["v"])))
    };
    passes(for_node("n1"), &onto([("n1", &["a"])]));
    passes(for_node("n3"), &onto([("n1", &["a"])]));
    let other = "claim default/v: its volume is being made for another node";
    breaks(for_node("n2"), &onto([("n1", &["a"])]), &format!("default/a on n1: {other}"));
    breaks(for_node("n2"), &of_claims([claim(&["a"], "b")]), &format!("default/a on claim 0 as spot m in b: {other}"));
}

#[test]
fn drivers_attach_so_many_volumes() {
    let with = |limit: u32| cluster().csi_nodes([csi_node(limit)]).volume_claims([waiting("v1"), waiting("v2")]);
    let both = || onto([("n1", &["a", "b"])]);
    let apart = |limit| with(limit).pods(mounting("a", &["v1"])).pods(mounting("b", &["v2"]));
    breaks(apart(1), &both(), "n1: d: 0 volumes and 2 more, limit 1");
    passes(apart(2), &both());
    passes(apart(1), &onto([("n2", &["a", "b"])]));
    passes(with(1).pods(mounting("a", &["v1"])).pods(mounting("b", &["v1"])), &both());
    passes(with(1).pods(mounting("a", &["v1"])).pods(mounting("b", &[])), &both());
    let mut running = mounting("r", &["v1"]);
    running.spec.node_name = "n1".to_owned();
    let beside = |claim: &str| with(1).pods(running.clone()).pods(mounting("a", &[claim]));
    breaks(beside("v2"), &onto([("n1", &["a"])]), "n1: d: 1 volumes and 1 more, limit 1");
    passes(beside("v1"), &onto([("n1", &["a"])]));
    // More than there should be is no matter to pods without volumes.
    let none = with(0).pods(running.clone()).pods(pod("a", "", ""));
    passes(none, &onto([("n1", &["a"])]));
}

#[test]
fn old_names_of_drivers_are_counted_with_the_new() {
    let mut old = class("old", "");
    old.provisioner = "kubernetes.io/aws-ebs".to_owned();
    let node: CsiNode =
        read(r#"{"metadata":{"name":"n1"},"spec":{"drivers":[{"name":"ebs.csi.aws.com","allocatable":{"count":1}}]}}"#);
    let claims = [
        volume_claim("v1", "", r#""storageClassName":"old""#),
        volume_claim("v2", BOUND, r#""volumeName":"p2""#),
        volume_claim("v3", BOUND, r#""volumeName":"p3""#),
    ];
    let volumes = [
        volume("p2", r#""awsElasticBlockStore":{"volumeID":"aws://zone/vol-1"}"#),
        volume("p3", r#""csi":{"driver":"ebs.csi.aws.com","volumeHandle":"vol-1"}"#),
    ];
    let with = |claims_of_pod: &[&str]| {
        let builder = cluster().storage_classes([old.clone()]).csi_nodes([node.clone()]).volumes(volumes.clone());
        violations(builder.volume_claims(claims.clone()).pods(mounting("a", claims_of_pod)), &onto([("n1", &["a"])]))
    };
    assert_eq!(with(&["v1", "v2"]), ["n1: ebs.csi.aws.com: 0 volumes and 2 more, limit 1"]);
    assert_eq!(with(&["v2", "v3"]), [""; 0]);
}

#[test]
fn volumes_in_the_old_notation_are_counted_with_those_of_their_driver() {
    for (driver, source) in [
        ("disk.csi.azure.com", r#""azureDisk":{"diskURI":"v"}"#),
        ("file.csi.azure.com", r#""azureFile":{"secretName":"s","shareName":"v"}"#),
        ("cinder.csi.openstack.org", r#""cinder":{"volumeID":"v"}"#),
        ("pd.csi.storage.gke.io", r#""gcePersistentDisk":{"pdName":"v"}"#),
        ("pxd.portworx.com", r#""portworxVolume":{"volumeID":"v"}"#),
        ("csi.vsphere.vmware.com", r#""vsphereVolume":{"volumePath":"v"}"#),
    ] {
        let node: CsiNode = read(&format!(
            r#"{{"metadata":{{"name":"n1"}},"spec":{{"drivers":[{{"name":"{driver}","allocatable":{{"count":0}}}}]}}}}"#
        ));
        let over = format!("n1: {driver}: 0 volumes and 1 more, limit 0");
        let naming = pod("a", "", &format!(r#""volumes":[{{"name":"v",{source}}}]"#));
        breaks(cluster().csi_nodes([node.clone()]).pods(naming), &onto([("n1", &["a"])]), &over);
        breaks(bound(source).csi_nodes([node]), &onto([("n1", &["a"])]), &over);
    }
}

#[test]
fn two_pods_of_a_node_do_not_mount_a_disk_that_they_name() {
    let naming = |name: &str, source: &str| pod(name, "", &format!(r#""volumes":[{{"name":"v",{source}}}]"#));
    let read_only = r#""iscsi":{"iqn":"v","readOnly":true}"#;
    for (one, other, is_shared) in [
        (r#""awsElasticBlockStore":{"volumeID":"v"}"#, r#""awsElasticBlockStore":{"volumeID":"v"}"#, true),
        (r#""awsElasticBlockStore":{"volumeID":"v"}"#, r#""awsElasticBlockStore":{"volumeID":"w"}"#, false),
        (r#""gcePersistentDisk":{"pdName":"v"}"#, r#""gcePersistentDisk":{"pdName":"v"}"#, true),
        (read_only, read_only, false),
        (read_only, r#""iscsi":{"iqn":"v"}"#, true),
        (r#""rbd":{"image":"v"}"#, r#""rbd":{"pool":"rbd","image":"v"}"#, true),
    ] {
        let pods = vec![naming("a", one), naming("b", other)];
        let problem = || with_pool(cluster().pods(pods.clone()));
        let wrong = |node: &str| is_shared.then(|| format!("default/b on {node}: default/a mounts the same disk"));
        let found = violations(problem(), &onto([("n1", &["a", "b"])]));
        assert_eq!(found, Vec::from_iter(wrong("n1")), "{one} {other}");
        let found = violations(problem(), &of_claims([claim(&["a", "b"], "")]));
        assert_eq!(found, Vec::from_iter(wrong("claim 0 as spot m in a")), "{one} {other}");
        passes(problem(), &onto([("n1", &["a"]), ("n2", &["b"])]));
    }
}

#[test]
fn a_pod_opens_no_domain_away_from_its_volume() {
    let rules = |claim: &str| {
        format!(
            r#""volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"{claim}"}}}}],"topologySpreadConstraints":[{{
                "maxSkew":1,"topologyKey":"{}","whenUnsatisfiable":"DoNotSchedule","labelSelector":{{"matchLabels":{{"app":"a"}}}}}}]"#,
            labels::ZONE
        )
    };
    let problem = |claim: &str| {
        let pods = vec![pod_on("n1", "r", r#""app":"a""#, ""), pod("a", r#""app":"a""#, &rules(claim))];
        let claims = [volume_claim("here", BOUND, r#""volumeName":"p""#), waiting("anywhere")];
        let volumes = [volume("p", &tied_to(labels::ZONE, "a"))];
        let only_n1 = Snapshot::builder().node(super::helpers::node("n1", "a")).storage_classes([class("w", "")]);
        with_pool(only_n1.volume_claims(claims).volumes(volumes).pods(pods))
    };
    passes(problem("here"), &onto([("n1", &["a"])]));
    assert_eq!(violations(problem("anywhere"), &onto([("n1", &["a"])])).len(), 1);
}
