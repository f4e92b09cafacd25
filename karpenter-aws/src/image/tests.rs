use std::time::Duration;

use karpenter_core::Timestamp;

use super::*;
use crate::{
    ec2::Image,
    nodeclass::{Alias, Ami, AmiSelectorTerm},
    version::KubernetesVersion,
};

fn names(alias: &str, minor: u32) -> Vec<String> {
    let alias: Alias = alias.parse().expect("an alias");
    let found = parameters(&alias, KubernetesVersion { major: 1, minor }).expect("supported");
    found.into_iter().map(|parameter| parameter.name).collect()
}

#[test]
fn amazon_linux_is_published_by_version_or_as_recommended() {
    assert_eq!(
        names("al2@latest", 32),
        [
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id",
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/recommended/image_id",
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id",
        ]
    );
    assert_eq!(
        names("al2@v20240807", 32)[2],
        "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/amazon-eks-gpu-node-1.32-v20240807/image_id"
    );
    assert_eq!(
        names("al2@v20240807", 32)[0],
        "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/amazon-eks-node-1.32-v20240807/image_id"
    );
    let al2023 = names("al2023@latest", 33);
    assert_eq!(al2023.len(), 5);
    assert_eq!(al2023[4], "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/nvidia/recommended/image_id");
    assert_eq!(
        names("al2023@v20240807", 33)[0],
        "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.33-v20240807/image_id"
    );
}

#[test]
fn bottlerocket_is_published_without_the_letter_of_its_versions() {
    let expected = "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/arm64/1.20.3/image_id";
    for alias in ["bottlerocket@v1.20.3", "bottlerocket@1.20.3"] {
        assert_eq!(names(alias, 33)[3], expected);
    }
    assert_eq!(names("bottlerocket@latest", 33)[0], "/aws/service/bottlerocket/aws-k8s-1.33/x86_64/latest/image_id");
}

#[test]
fn windows_is_published_as_the_latest_only() {
    let name = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id";
    assert_eq!(names("windows2022@latest", 33), [name]);
}

#[test]
fn what_ends_or_begins_with_a_version_is_not_published_before_or_after() {
    let of = |alias: &str, minor| parameters(&alias.parse().expect("an alias"), KubernetesVersion { major: 1, minor });
    let version = |minor| KubernetesVersion { major: 1, minor };
    assert_eq!(of("al2@latest", 33), Err(UnsupportedAlias::Al2 { version: version(33) }));
    assert!(of("al2@latest", 32).is_ok());
    assert_eq!(of("windows2025@latest", 34), Err(UnsupportedAlias::Windows2025 { version: version(34) }));
    assert!(of("windows2025@latest", 35).is_ok());
}

#[test]
fn all_ids_are_asked_for_at_once_and_other_terms_one_by_one() {
    let term = |name: &str, owner: &str, tag: &str| AmiSelectorTerm {
        name: name.to_owned(),
        owner: owner.to_owned(),
        tags: (!tag.is_empty()).then(|| (tag.to_owned(), "*".to_owned())).into_iter().collect(),
        ..AmiSelectorTerm::default()
    };
    let parameter = |name: &str| AmiSelectorTerm { ssm_parameter: name.to_owned(), ..AmiSelectorTerm::default() };
    let terms = [
        AmiSelectorTerm::of_id("ami-1"),
        term("my-*", "", ""),
        parameter("/good"),
        term("", "", "team"),
        parameter("/bad"),
        parameter("/missing"),
        term("x", "012345678901", "team"),
    ];
    let found = queries(&terms, |name| match name {
        "/good" => Some("ami-2".to_owned()),
        "/bad" => Some("nonsense".to_owned()),
        _ => None,
    });
    let named = |name: Option<&str>, tag: Option<&str>, owners: &[&str]| ImageQuery::Named {
        name: name.map(str::to_owned),
        tags: tag.map(|tag| (tag.to_owned(), "*".to_owned())).into_iter().collect(),
        owners: owners.iter().map(|owner| (*owner).to_owned()).collect(),
    };
    assert_eq!(
        found,
        [
            named(Some("my-*"), None, &["self", "amazon"]),
            named(None, Some("team"), &[]),
            named(Some("x"), Some("team"), &["012345678901"]),
            ImageQuery::Ids(vec!["ami-1".to_owned(), "ami-2".to_owned()]),
        ]
    );
}

fn day(n: u64) -> Timestamp {
    Timestamp::from_millis(0) + Duration::from_hours(24 * n)
}

fn image(id: &str, name: &str, created: Option<u64>) -> Image {
    Image {
        image_id: id.to_owned(),
        name: name.to_owned(),
        architecture: "x86_64".to_owned(),
        creation_date: created.map(day),
        deprecation_time: None,
    }
}

fn ids(images: &[(Image, &[Variant])], now: u64) -> Vec<String> {
    let candidates: Vec<_> = images
        .iter()
        .map(|(image, variants)| Candidate { image: image.clone(), variants: variants.to_vec() })
        .collect();
    chosen(&candidates, day(now)).into_iter().map(|ami| ami.id).collect()
}

#[test]
fn of_images_for_the_same_machines_the_best_is_kept() {
    let old = Image { deprecation_time: Some(day(5)), ..image("ami-old", "z", Some(3)) };
    assert_eq!(ids(&[(image("ami-1", "a", Some(1)), &[]), (image("ami-2", "a", Some(2)), &[])], 9), ["ami-2"]);
    assert_eq!(ids(&[(old.clone(), &[]), (image("ami-1", "a", Some(1)), &[])], 9), ["ami-1"], "not a deprecated one");
    assert_eq!(ids(&[(old.clone(), &[]), (image("ami-1", "a", Some(1)), &[])], 4), ["ami-old"], "not deprecated yet");
    assert_eq!(ids(&[(old, &[])], 9), ["ami-old"], "better than none");
    assert_eq!(
        ids(&[(image("ami-1", "a", Some(1)), &[]), (image("ami-2", "b", Some(1)), &[])], 9),
        ["ami-2"],
        "by name"
    );
    assert_eq!(ids(&[(image("ami-1", "a", None), &[]), (image("ami-2", "a", Some(1)), &[])], 9), ["ami-2"], "by time");
}

#[test]
fn images_are_sorted_by_time_then_id_and_one_may_come_twice() {
    let gpu = (image("ami-gpu", "g", Some(1)), &[Variant::Neuron, Variant::Nvidia][..]);
    let arm = (Image { architecture: "arm64".to_owned(), ..image("ami-arm", "a", Some(1)) }, &[Variant::Standard][..]);
    let plain = (image("ami-plain", "p", Some(2)), &[Variant::Standard][..]);
    let other = (Image { architecture: "i386".to_owned(), ..image("ami-386", "p", Some(2)) }, &[][..]);
    assert_eq!(ids(&[gpu, arm, plain, other], 9), ["ami-plain", "ami-arm", "ami-gpu", "ami-gpu"]);
}

#[test]
fn a_type_starts_from_the_first_image_that_is_made_for_it() {
    let candidates = [
        Candidate { image: image("ami-plain", "p", Some(2)), variants: vec![Variant::Standard] },
        Candidate { image: image("ami-gpu", "g", Some(1)), variants: vec![Variant::Nvidia] },
    ];
    let amis = chosen(&candidates, day(9));
    let keys: Vec<_> = amis[0].requirements.iter().map(|r| r.key.as_str()).collect();
    assert_eq!(keys, ["kubernetes.io/arch", labels::GPU_COUNT, labels::ACCELERATOR_COUNT]);
    let of = |gpus: Requirement, arch: &str| {
        let mut own = Requirements::new();
        own.add(labels::GPU_COUNT, gpus);
        own.add(core_labels::ARCH, Requirement::one_of([arch]));
        image_of(&own, &amis).map(|ami: &Ami| ami.id.clone())
    };
    assert_eq!(of(Requirement::ABSENT, "amd64").as_deref(), Some("ami-plain"));
    assert_eq!(of(Requirement::one_of(["4"]), "amd64").as_deref(), Some("ami-gpu"));
    assert_eq!(of(Requirement::ABSENT, "arm64"), None);
    assert_eq!(image_of(&Requirements::new(), &amis), None, "its architecture is not known");
}
