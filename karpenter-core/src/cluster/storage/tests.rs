use super::*;
use crate::{Snapshot, SnapshotBuilder, api::NodeSelector};

const BOUND: &str = r#""annotations":{"pv.kubernetes.io/bind-completed":"yes"}"#;
const GONE: &str = r#""deletionTimestamp":"2026-01-01T00:00:00Z""#;

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect(json)
}

fn object<T: serde::de::DeserializeOwned>(name: &str, meta: &str, more: &str) -> T {
    let comma = |text: &str| if text.is_empty() { String::new() } else { format!(",{text}") };
    read(&format!(r#"{{"metadata":{{"name":"{name}"{}}}{}}}"#, comma(meta), comma(more)))
}

fn unbound(name: &str, class: &str) -> PersistentVolumeClaim {
    object(name, "", &format!(r#""spec":{{"storageClassName":{class}}}"#))
}

/// A claim that has the volume of its name.
fn bound(name: &str) -> PersistentVolumeClaim {
    object(name, BOUND, &format!(r#""spec":{{"volumeName":"{name}"}}"#))
}

fn volume(name: &str, kind: &str, terms: &str) -> PersistentVolume {
    let affinity = format!(r#""nodeAffinity":{{"required":{{"nodeSelectorTerms":{terms}}}}}"#);
    object(name, "", &format!(r#""spec":{{{kind},{affinity}}}"#))
}

fn csi(name: &str, terms: &str) -> PersistentVolume {
    volume(name, r#""csi":{"driver":"disks"}"#, terms)
}

/// A class that waits for a pod, with a topology for each text.
fn class(name: &str, topologies: &[&str]) -> StorageClass {
    let term = |expressions: &&str| format!(r#"{{"matchLabelExpressions":[{expressions}]}}"#);
    let terms: Vec<_> = topologies.iter().map(term).collect();
    let terms = terms.join(",");
    let mode = r#""volumeBindingMode":"WaitForFirstConsumer""#;
    object(name, "", &format!(r#""provisioner":"disks",{mode},"allowedTopologies":[{terms}]"#))
}

fn zones(values: &str) -> String {
    format!(r#"{{"key":"zone","values":[{values}]}}"#)
}

/// A term of node affinity: the key is one of the values.
fn term(key: &str, values: &str) -> String {
    format!(r#"{{"matchExpressions":[{{"key":"{key}","operator":"In","values":[{values}]}}]}}"#)
}

/// A pod that mounts these claims.
fn pod(claims: &[&str]) -> Pod {
    let volume = |claim: &&str| format!(r#"{{"name":"v","persistentVolumeClaim":{{"claimName":"{claim}"}}}}"#);
    let volumes: Vec<_> = claims.iter().map(volume).collect();
    object("p", "", &format!(r#""spec":{{"volumes":[{}]}}"#, volumes.join(",")))
}

/// A pod with an ephemeral volume, whose claim is named `p-scratch`.
fn ephemeral(template: &str) -> Pod {
    let volume = format!(r#"{{"name":"scratch","ephemeral":{{"volumeClaimTemplate":{template}}}}}"#);
    object("p", "", &format!(r#""spec":{{"volumes":[{volume}]}}"#))
}

fn storage(builder: SnapshotBuilder) -> Storage {
    builder.build().expect("valid").storage().clone()
}

fn alternatives(storage: &Storage, pod: &Pod) -> Result<Vec<String>, String> {
    let needs = storage.needs_of(pod).map_err(|problem| problem.to_string())?;
    Ok(needs.alternatives.iter().map(ToString::to_string).collect())
}

fn attached(storage: &Storage, pod: &Pod) -> Vec<String> {
    storage.attachments_of(pod).iter().map(|a| format!("{} {}", a.driver, a.volume)).collect()
}

#[test]
fn every_problem_names_the_claim_and_what_is_wrong() {
    let immediate: StorageClass = object("now", "", r#""provisioner":"disks""#);
    let going: PersistentVolume = object("going", GONE, r#""spec":{}"#);
    let builder = Snapshot::builder().storage_classes([immediate]).volumes([going, csi("half", "[]")]).volume_claims([
        object("deleted", GONE, r#""spec":{"storageClassName":"now"}"#),
        object("lost", BOUND, r#""spec":{"volumeName":"half"},"status":{"phase":"Lost"}"#),
        bound("nothing"),
        bound("going"),
        object("half", "", r#""spec":{"volumeName":"half"}"#),
        unbound("classless", r#""""#),
        unbound("default", "null"),
        unbound("unknown", r#""void""#),
        unbound("waits", r#""now""#),
    ]);
    let storage = storage(builder);
    for (claim, expected) in [
        ("absent", "volume claim default/absent does not exist"),
        ("deleted", "volume claim default/deleted is being deleted"),
        ("lost", "volume claim default/lost has lost its volume"),
        ("nothing", "volume nothing of volume claim default/nothing does not exist"),
        ("going", "volume going of volume claim default/going is being deleted"),
        ("half", "volume claim default/half is not fully bound to volume half"),
        ("classless", "volume claim default/classless has no volume and no storage class"),
        ("default", "volume claim default/default has no volume and no storage class"),
        ("unknown", "storage class void of volume claim default/unknown does not exist"),
        (
            "waits",
            "volume claim default/waits has no volume, and storage class now does not wait for a pod to make one",
        ),
    ] {
        assert_eq!(alternatives(&storage, &pod(&[claim])), Err(expected.to_owned()));
    }
}

#[test]
fn a_claim_is_looked_up_in_the_namespace_of_the_pod() {
    let elsewhere: PersistentVolumeClaim = object("c", r#""namespace":"shop""#, r#""spec":{"storageClassName":"s"}"#);
    let storage = storage(Snapshot::builder().volume_claims([elsewhere]).storage_classes([class("s", &[])]));
    let mut pod = pod(&["c"]);
    assert_eq!(alternatives(&storage, &pod), Err("volume claim default/c does not exist".to_owned()));
    pod.metadata.namespace = "shop".to_owned();
    assert_eq!(alternatives(&storage, &pod), Ok(vec![]));
    assert_eq!(attached(&storage, &pod), ["disks shop/c"]);
}

#[test]
fn volumes_that_any_node_can_mount_ask_for_nothing() {
    let no_affinity: PersistentVolume = object("free", "", r#""spec":{"csi":{"driver":"disks","volumeHandle":"h"}}"#);
    let storage = storage(
        Snapshot::builder()
            .volume_claims([bound("free"), bound("termless"), unbound("new", r#""s""#)])
            .volumes([no_affinity, csi("termless", "[]")])
            .storage_classes([class("s", &[])]),
    );
    let needs = storage.needs_of(&pod(&["free", "termless", "new"])).expect("mountable");
    assert_eq!(needs.alternatives, []);
    assert!(needs.admit_node("n", &BTreeMap::new()));
    assert_eq!(needs.attachments.len(), 3);
    let without: Pod = object("p", "", r#""spec":{"volumes":[{"name":"v","emptyDir":{}}]}"#);
    assert_eq!(storage.needs_of(&without), Ok(VolumeNeeds::default()));
}

#[test]
fn bound_volumes_need_one_of_their_terms_and_new_ones_one_of_their_topologies() {
    let terms = format!("[{},{},{{}}]", term("zone", r#""a""#), term("zone", r#""b""#));
    let two_keys = r#"{"key":"zone","values":["a","b"]},{"key":"rack","values":["1"]}"#;
    let storage = storage(
        Snapshot::builder()
            .volume_claims([bound("bound"), unbound("new", r#""s""#), unbound("nowhere", r#""empty""#)])
            .volumes([csi("bound", &terms)])
            .storage_classes([class("s", &[two_keys, &zones(r#""c""#), ""]), class("empty", &[""])]),
    );
    let of = |claims: &[&str]| alternatives(&storage, &pod(claims));
    let texts = |texts: &[&str]| Ok(texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>());
    assert_eq!(of(&["bound"]), texts(&["zone In [a]", "zone In [b]"]));
    assert_eq!(of(&["new"]), texts(&["rack In [1], zone In [a, b]", "zone In [c]"]));
    // Zone c is impossible for the bound volume.
    assert_eq!(of(&["new", "bound"]), texts(&["rack In [1], zone In [a]", "rack In [1], zone In [b]"]));
    assert_eq!(of(&["nowhere"]), Err("no node can mount the volumes of volume claim default/nowhere".to_owned()));
}

#[test]
fn the_zone_of_a_volume_may_be_a_label() {
    let zone = |name: &str, key: &str, zones: &str, affinity: &str| -> PersistentVolume {
        let spec = format!(r#""spec":{{"nodeAffinity":{{"required":{{"nodeSelectorTerms":{affinity}}}}}}}"#);
        object(name, &format!(r#""labels":{{"{key}":"{zones}"}}"#), &spec)
    };
    let beta = "failure-domain.beta.kubernetes.io/zone";
    let racks = format!("[{},{}]", term("rack", r#""1""#), term("rack", r#""2""#));
    let elsewhere = format!("[{}]", term(beta, r#""b""#));
    let names = ["one", "several", "racks", "nowhere", "ebs", "void"];
    let storage = storage(Snapshot::builder().volume_claims(names.map(bound)).volumes([
        zone("one", labels::ZONE, "a", "[]"),
        zone("several", beta, "a__b", "[]"),
        zone("racks", labels::ZONE, "a", &racks),
        zone("nowhere", labels::ZONE, "a", &elsewhere),
        zone("void", labels::ZONE, "a__", "[]"),
        zone("ebs", "topology.ebs.csi.aws.com/zone", "a", "[]"),
    ]));
    let of = |claim: &str| alternatives(&storage, &pod(&[claim])).map(|texts| texts.join("; "));
    assert_eq!(of("one").as_deref(), Ok("topology.kubernetes.io/zone In [a]"));
    assert_eq!(of("several").as_deref(), Ok("topology.kubernetes.io/zone In [a, b]"));
    let in_racks = "rack In [1], topology.kubernetes.io/zone In [a]; rack In [2], topology.kubernetes.io/zone In [a]";
    assert_eq!(of("racks").as_deref(), Ok(in_racks));
    assert_eq!(of("nowhere"), Err("no node can mount the volumes of volume claim default/nowhere".to_owned()));
    assert_eq!(of("ebs").as_deref(), Ok(""));
    assert_eq!(of("void").as_deref(), Ok(""));
}

#[test]
fn the_name_of_the_node_may_be_asked_for() {
    let terms = r#"[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]"#;
    let storage = storage(Snapshot::builder().volume_claims([bound("v")]).volumes([csi("v", terms)]));
    let needs = storage.needs_of(&pod(&["v"])).expect("mountable");
    assert!(needs.admit_node("n1", &BTreeMap::new()) && !needs.admit_node("n2", &BTreeMap::new()));
}

#[test]
fn a_volume_is_made_for_the_node_that_was_selected() {
    let selected = |node: &str, more: &str| -> PersistentVolumeClaim {
        let meta = format!(r#""annotations":{{"volume.kubernetes.io/selected-node":"{node}"}}"#);
        object("c", &meta, &format!(r#""spec":{{"storageClassName":"s"{more}}}"#))
    };
    let gone = object("going", GONE, "");
    let nodes = [object("n1", "", ""), object("n2", "", ""), gone].map(std::sync::Arc::<crate::api::Node>::new);
    let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    for (claim, classes, expected) in [
        (selected("n1", ""), class("s", &[]), [true, false, true, false]),
        (selected("n1", ""), class("s", &[&zones(r#""a""#)]), [true, false, false, false]),
        (selected("absent", ""), class("s", &[&zones(r#""a""#)]), [true, true, false, false]),
        (selected("going", ""), class("s", &[]), [true; 4]),
    ] {
        let builder = Snapshot::builder().nodes(nodes.clone()).volume_claims([claim]).storage_classes([classes]);
        let needs = storage(builder).needs_of(&pod(&["c"])).expect("mountable");
        let found = [("n1", "a"), ("n2", "a"), ("n1", "b"), ("n2", "b")].map(|(n, z)| needs.admit_node(n, &zone(z)));
        assert_eq!(found, expected);
    }
}

#[test]
fn combinations_are_pruned_and_counted_once() {
    let pair = |key: &str, values: &str| format!(r#"{{"key":"{key}","values":[{values}]}}"#);
    let storage = storage(
        Snapshot::builder()
            .volume_claims([
                unbound("ab", r#""ab""#),
                unbound("bc", r#""bc""#),
                unbound("ab2", r#""ab""#),
                unbound("either", r#""either""#),
                unbound("either2", r#""either""#),
                unbound("d", r#""d""#),
            ])
            .storage_classes([
                class("ab", &[&zones(r#""a""#), &zones(r#""b""#)]),
                class("bc", &[&zones(r#""b""#), &zones(r#""c""#), &zones(r#""b""#)]),
                class("either", &[&pair("x", r#""1""#), &pair("y", r#""1""#)]),
                class("d", &[&zones(r#""d""#)]),
            ]),
    );
    let of = |claims: &[&str]| alternatives(&storage, &pod(claims)).map(|texts| texts.join("; "));
    assert_eq!(of(&["ab", "bc"]).as_deref(), Ok("zone In [b]"));
    assert_eq!(of(&["ab", "ab2", "ab"]).as_deref(), Ok("zone In [a]; zone In [b]"));
    assert_eq!(of(&["either", "either2"]).as_deref(), Ok("x In [1]; y In [1]"));
    assert_eq!(
        of(&["ab", "either", "d"]),
        Err("no node can mount the volumes of volume claims default/ab, default/either, default/d".to_owned())
    );
}

#[test]
fn too_many_combinations_are_refused() {
    let names: Vec<String> = (0..6).map(|i| format!("c{i}")).collect();
    let topologies = |i: usize| {
        let term = |j: usize| format!(r#"{{"key":"k{i}","values":["{j}"]}}"#);
        (0..4).map(term).collect::<Vec<_>>()
    };
    let classes = names.iter().enumerate().map(|(i, name)| {
        let topologies = topologies(i);
        class(name, &topologies.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let claims = names.iter().map(|name| unbound(name, &format!("{name:?}")));
    let storage = storage(Snapshot::builder().volume_claims(claims).storage_classes(classes));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(storage.needs_of(&pod(&names[..5])).map(|needs| needs.alternatives.len()), Ok(1024));
    let claims = names.iter().map(|&name| ObjectKey::new("default", name)).collect();
    assert_eq!(storage.needs_of(&pod(&names)), Err(VolumeProblem::TooManyAlternatives { claims, max: 1024 }));
    let with_terms = |count: usize| {
        let mut pod = pod(&names[..5]);
        let node_selector_terms = vec![NodeSelectorTerm::default(); count];
        pod.spec.affinity.node_affinity.required = Some(NodeSelector { node_selector_terms });
        storage.needs_of(&pod).map(|needs| needs.alternatives.len())
    };
    let claims = names[..5].iter().map(|&name| ObjectKey::new("default", name)).collect();
    assert_eq!(with_terms(9), Ok(1024));
    assert_eq!(with_terms(10), Err(VolumeProblem::TooManyTerms { claims, max: 10_000 }));
}

#[test]
fn volumes_on_a_node_do_not_hold_the_pod_to_its_host() {
    let host = term("kubernetes.io/hostname", r#""n1""#);
    let both = r#"{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["n1"]},
        {"key":"zone","operator":"In","values":["a"]}]}"#;
    for (kind, terms, expected) in [
        (r#""local":{"path":"/x"}"#, format!("[{host}]"), ""),
        (r#""hostPath":{"path":"/x"}"#, format!("[{host}]"), ""),
        (r#""local":{"path":"/x"}"#, format!("[{both}]"), "zone In [a]"),
        // What is left of one of the terms is met by any node.
        (r#""local":{"path":"/x"}"#, format!("[{both},{host}]"), ""),
        (r#""csi":{"driver":"d"}"#, format!("[{host}]"), "kubernetes.io/hostname In [n1]"),
    ] {
        let storage = storage(Snapshot::builder().volume_claims([bound("v")]).volumes([volume("v", kind, &terms)]));
        let got = alternatives(&storage, &pod(&["v"])).expect("mountable");
        assert_eq!(got.join("; "), expected, "{kind} {terms}");
    }
}

#[test]
fn claims_of_ephemeral_volumes_are_named_after_pod_and_volume() {
    let classes = || [class("s", &[&zones(r#""a""#)])];
    let of_template = ephemeral(r#"{"spec":{"storageClassName":"s"}}"#);
    let coming = storage(Snapshot::builder().storage_classes(classes()));
    assert_eq!(alternatives(&coming, &of_template), Ok(vec!["zone In [a]".to_owned()]));
    assert_eq!(attached(&coming, &of_template), ["disks default/p-scratch"]);
    let of_annotation =
        ephemeral(r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"s"}},"spec":{}}"#);
    assert_eq!(alternatives(&coming, &of_annotation), Ok(vec!["zone In [a]".to_owned()]));
    let expected = "storage class void of volume claim default/p-scratch does not exist";
    let of_nothing = ephemeral(r#"{"spec":{"storageClassName":"void"}}"#);
    assert_eq!(alternatives(&coming, &of_nothing), Err(expected.to_owned()));
    // The claim that there is counts, not the template.
    let made = Snapshot::builder().storage_classes(classes()).volume_claims([bound("p-scratch")]);
    let made = storage(made.volumes([csi("p-scratch", &format!("[{}]", term("zone", r#""b""#)))]));
    assert_eq!(alternatives(&made, &of_template), Ok(vec!["zone In [b]".to_owned()]));
}

#[test]
fn a_claim_that_names_no_class_is_of_the_newest_default_one() {
    let default = |name: &str, created: &str| {
        let mut class = class(name, &[&zones(&format!("{name:?}"))]);
        class.metadata.annotations.insert("storageclass.kubernetes.io/is-default-class".to_owned(), "true".to_owned());
        class.metadata.creation_timestamp = Some(created.parse().expect("a time"));
        class
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let claims = || [unbound("c", "null"), unbound("none", r#""""#)];
    for (classes, expected) in [
        (vec![default("a", old), default("b", new), class("z", &[])], "zone In [b]"),
        (vec![default("a", new), default("b", new)], "zone In [a]"),
    ] {
        let storage = storage(Snapshot::builder().volume_claims(claims()).storage_classes(classes));
        assert_eq!(alternatives(&storage, &pod(&["c"])), Ok(vec![expected.to_owned()]));
        assert_eq!(attached(&storage, &pod(&["c", "none"])), ["disks default/c"]);
        let problem = VolumeProblem::NoClass { claim: ObjectKey::new("default", "none") };
        assert_eq!(storage.needs_of(&pod(&["none"])), Err(problem));
    }
}

#[test]
fn attachments_are_named_by_the_driver_of_the_volume() {
    let mut in_tree = class("gp2", &[]);
    in_tree.provisioner = "kubernetes.io/aws-ebs".to_owned();
    let vanished: PersistentVolumeClaim =
        object("vanished", BOUND, r#""spec":{"volumeName":"x","storageClassName":"s"}"#);
    let storage = storage(
        Snapshot::builder()
            .volume_claims([bound("handle"), bound("ebs"), bound("short"), bound("local"), bound("same"), vanished])
            .volume_claims([unbound("new", r#""s""#), unbound("gp2", r#""gp2""#), unbound("void", r#""void""#)])
            .volumes([
                volume("handle", r#""csi":{"driver":"d","volumeHandle":"h"}"#, "[]"),
                volume("same", r#""csi":{"driver":"d","volumeHandle":"h"}"#, "[]"),
                volume("ebs", r#""awsElasticBlockStore":{"volumeID":"aws://us-east-1a/vol-1"}"#, "[]"),
                volume("short", r#""awsElasticBlockStore":{"volumeID":"vol-2"}"#, "[]"),
                volume("local", r#""local":{}"#, "[]"),
            ])
            .storage_classes([class("s", &[]), in_tree]),
    );
    for (claims, expected) in [
        (&["handle", "same", "handle"][..], &["d h"][..]),
        (&["ebs", "short"], &["ebs.csi.aws.com vol-1", "ebs.csi.aws.com vol-2"]),
        (&["gp2", "new"], &["disks default/new", "ebs.csi.aws.com default/gp2"]),
        (&["vanished"], &["disks default/vanished"]),
        (&["local", "void", "absent"], &[]),
    ] {
        assert_eq!(attached(&storage, &pod(claims)), expected, "{claims:?}");
    }
}

#[test]
fn volumes_that_drivers_took_over_are_theirs() {
    for (provisioner, source, expected) in [
        ("aws-ebs", r#""awsElasticBlockStore":{"volumeID":"aws://z/v"}"#, "ebs.csi.aws.com v"),
        ("azure-disk", r#""azureDisk":{"diskURI":"/Disk"}"#, "disk.csi.azure.com /disk"),
        ("azure-file", r#""azureFile":{"secretName":"s","shareName":"f"}"#, "file.csi.azure.com s#f"),
        ("cinder", r#""cinder":{"volumeID":"v"}"#, "cinder.csi.openstack.org v"),
        ("gce-pd", r#""gcePersistentDisk":{"pdName":"v"}"#, "pd.csi.storage.gke.io v"),
        ("portworx-volume", r#""portworxVolume":{"volumeID":"v"}"#, "pxd.portworx.com v"),
        ("vsphere-volume", r#""vsphereVolume":{"volumePath":"[d] v"}"#, "csi.vsphere.vmware.com [d] v"),
    ] {
        let mut class = class("s", &[]);
        class.provisioner = format!("kubernetes.io/{provisioner}");
        let builder = Snapshot::builder().storage_classes([class]).volumes([volume("bound", source, "[]")]);
        let storage = storage(builder.volume_claims([bound("bound"), unbound("new", r#""s""#)]));
        assert_eq!(attached(&storage, &pod(&["bound"])), [expected]);
        let naming: Pod = object("p", "", &format!(r#""spec":{{"volumes":[{{"name":"v",{source}}}]}}"#));
        assert_eq!(attached(&storage, &naming), [expected]);
        let (driver, _) = expected.split_once(' ').expect("a driver");
        assert_eq!(attached(&storage, &pod(&["new"])), [format!("{driver} default/new")]);
    }
}

#[test]
fn a_place_knows_what_its_drivers_can_attach_and_have_attached() {
    let node = |name: &str| object::<crate::api::Node>(name, "", &format!(r#""spec":{{"providerID":"{name}"}}"#));
    let on = |name: &str, node: &str, claims: &[&str]| {
        let mut pod = pod(claims);
        (pod.metadata.name, pod.spec.node_name) = (name.to_owned(), node.to_owned());
        pod
    };
    let mut finished = on("finished", "n1", &["b"]);
    finished.status.phase = "Succeeded".to_owned();
    let machine = object("claim", "", r#""status":{"providerID":"elsewhere"}"#);
    let drivers = r#""spec":{"drivers":[{"name":"disks","allocatable":{"count":3}},{"name":"files"}]}"#;
    let snapshot = Snapshot::builder()
        .nodes([node("n1"), node("n2")])
        .claim(machine)
        .csi_nodes([object("n1", "", drivers), object("claim", "", drivers)])
        .volume_claims([unbound("a", r#""s""#), unbound("b", r#""s""#), unbound("c", r#""s""#)])
        .storage_classes([class("s", &[])])
        .pods(vec![on("x", "n1", &["a"]), on("y", "n1", &["a", "absent"]), finished, on("promised", "", &["c"])])
        .nominate(ObjectKey::new("default", "promised"), "n1")
        .build()
        .expect("valid");
    let [claim, n1, n2] = snapshot.places() else { panic!("three places") };
    assert_eq!(n1.volume_limits, BTreeMap::from([("disks".to_owned(), 3)]));
    let attached: Vec<_> = n1.attached.iter().map(|a| a.volume.as_str()).collect();
    assert_eq!(attached, ["default/a", "default/c"]);
    for place in [claim, n2] {
        assert!(place.volume_limits.is_empty() && place.attached.is_empty(), "{}", place.name);
    }
}
