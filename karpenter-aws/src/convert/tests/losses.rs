//! What cannot be said today, and what was never said.

use super::*;

fn noted(yaml: &str) -> Vec<String> {
    notes(&converted(yaml))
}

fn template_with(rest: &str) -> String {
    template(&format!("{{instanceProfile: p, subnetSelector: {{a: b}}, securityGroupSelector: {{a: b}}, {rest}}}"))
}

#[test]
fn ids_count_without_the_tags_beside_them_which_are_named() {
    let found = converted(&template(
        "{instanceProfile: p, subnetSelector: {aws-ids: 'subnet-1,subnet-2', team: a, Name: b},
        securityGroupSelector: {'aws::ids': sg-1, team: a}, amiSelector: {aws-ids: ami-1, 'aws::owners': self}}",
    ));
    let spec = &found.classes[0].spec;
    let ids: Vec<_> = spec.subnet_selector_terms.iter().map(|term| (&*term.id, term.tags.len())).collect();
    assert_eq!(ids, [("subnet-1", 0), ("subnet-2", 0)]);
    let ids: Vec<_> = spec.security_group_selector_terms.iter().map(|term| (&*term.id, term.tags.len())).collect();
    assert_eq!(ids, [("sg-1", 0)]);
    let of = |field: &str, keys: &str| {
        format!("AWSNodeTemplate default: spec.{field}: ids stand alone now, so {keys} is left out")
    };
    assert_eq!(
        notes(&found),
        [of("subnetSelector", "Name, team"), of("securityGroupSelector", "team"), of("amiSelector", "aws::owners")]
    );
}

#[test]
fn empty_parts_of_a_selector_select_nothing() {
    let class = class(
        "{instanceProfile: p, subnetSelector: {aws-ids: 'subnet-1, ,'}, securityGroupSelector: {team: 'a,,b'},
        amiSelector: {'aws::name': ',x'}}",
    );
    assert_eq!(class.validate(), Ok(()));
    let count = (class.spec.subnet_selector_terms.len(), class.spec.security_group_selector_terms.len());
    assert_eq!((count, class.spec.ami_selector_terms.len()), ((1, 2), 2));
}

#[test]
fn what_an_api_server_would_refuse_is_said() {
    let of_class = "EC2NodeClass default: cannot be used as it comes out: spec.";
    for (yaml, expected) in [
        (
            template("{instanceProfile: p, subnetSelector: {a: b}}"),
            format!("{of_class}securityGroupSelectorTerms: 0 terms"),
        ),
        (template_with("tags: {karpenter.sh/nodepool: a}"), format!("{of_class}tags: karpenter.sh/nodepool is set")),
        (
            provisioner("{}"),
            "NodePool general: cannot be used as it comes out: spec.template.spec.nodeClassRef.name: must".to_owned(),
        ),
        (
            provisioner("{providerRef: {name: a}, weight: 101}"),
            "NodePool general: cannot be used as it comes out: spec.weight: 101".to_owned(),
        ),
    ] {
        let notes = noted(&yaml);
        assert!(notes.len() == 1 && notes[0].starts_with(&expected), "{expected}: {notes:?}");
    }
}

#[test]
fn a_family_that_there_is_not_is_said() {
    let notes = noted(&template_with("amiFamily: bottlerocket"));
    let expected = "AWSNodeTemplate default: spec.amiFamily: there is no family \"bottlerocket\", only Bottlerocket; it becomes Custom";
    assert_eq!(notes[0], expected);
    let notes = noted(&template_with("amiFamily: Flatcar, amiSelector: {a: b}"));
    let expected = "AWSNodeTemplate default: spec.amiFamily: there is no family \"Flatcar\"; it becomes Custom";
    assert_eq!(notes, [expected]);
    let error = try_convert(&template_with("amiFamily: 7"), true).expect_err("a number").to_string();
    assert!(error.starts_with("AWSNodeTemplate default: spec.amiFamily: "), "{error}");
}

#[test]
fn sizes_are_written_as_the_definition_wants_them() {
    for (old, now) in [
        ("30000Mi", "30Gi"),
        ("'107374182400'", "100Gi"),
        ("'100e9'", "94Gi"),
        ("100Gi", "100Gi"),
        ("100G", "100G"),
        ("1500G", "1500G"),
        ("2Ti", "2Ti"),
        ("58000G", "58T"),
    ] {
        let disks = format!("blockDeviceMappings: [{{ebs: {{volumeSize: {old}}}}}]");
        for yaml in [template_with(&disks), BETA_CLASS.replace("role: node", &format!("role: node, {disks}"))] {
            let class = converted(&yaml).classes.remove(0);
            let size = class.spec.block_device_mappings[0].ebs.as_ref().and_then(|ebs| ebs.volume_size);
            assert_eq!(size.map(|size| size.to_string()).as_deref(), Some(now), "{old}");
            assert_eq!(class.validate(), Ok(()));
        }
    }
    assert_eq!(noted(&template_with("blockDeviceMappings: [{ebs: {volumeSize: 100}}]")).len(), 1);
}

#[test]
fn fields_that_there_are_not_are_named() {
    let expect = |yaml: &str, object: &str, fields: &[&str]| {
        let kind = object.split(' ').next().unwrap_or_default();
        let mut expected: Vec<_> =
            fields.iter().map(|field| format!("{object}: {field} is not a field of {kind}, and is left out")).collect();
        expected.sort();
        let mut found = noted(yaml);
        found.sort();
        assert_eq!(found, expected);
    };
    expect(
        &template_with("amiSlector: {a: b}, role: r, blockDeviceMappings: [{ebs: {volumeSize: 1Gi, sise: 1}}]"),
        "AWSNodeTemplate default",
        &["spec.amiSlector", "spec.role", "spec.blockDeviceMappings[0].ebs.sise"],
    );
    expect(
        &BETA_CLASS.replace("role: node", "role: node, tyypo: 1, kubelet: {maxPods: 1}"),
        "EC2NodeClass default",
        &["spec.kubelet", "spec.tyypo"],
    );
    expect(
        &provisioner(
            "{providerRef: {name: a}, ttlSecondAfterEmpty: 30, consolidatoin: {enabled: true}, consolidation: {enable: true},
            limits: {resource: {}}, taints: [{key: a, effect: NoSchedule, valu: b}]}",
        ),
        "Provisioner general",
        &[
            "spec.consolidatoin",
            "spec.ttlSecondAfterEmpty",
            "spec.consolidation.enable",
            "spec.limits.resource",
            "spec.taints[0].valu",
        ],
    );
    let pool = beta("a", "{maxPods: 20}")
        .replace("spec:\n  template", "status: {a: b}\nspek: {}\nspec:\n  weightt: 3\n  template");
    let pool =
        pool.replace("name: a}", "name: a, managedFields: []}").replace("{name: default}", "{name: default, nam: a}");
    let yaml = format!("{pool}---\n{BETA_CLASS}");
    expect(&yaml, "NodePool a", &["spek", "spec.weightt", "spec.template.spec.nodeClassRef.nam"]);
}

#[test]
fn finalizers_are_kept() {
    let yaml = template_with("").replace("{name: default}", "{name: default, finalizers: [a/b]}");
    assert_eq!(converted(&yaml).classes[0].metadata.finalizers, ["a/b"]);
}
