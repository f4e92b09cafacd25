use super::*;

const INLINE: &str = "{provider: {instanceProfile: p, subnetSelector: {a: b}, securityGroupSelector: {a: b}}}";
const TEMPLATE: &str = "{instanceProfile: p, subnetSelector: {c: d}, securityGroupSelector: {c: d}}";

fn class_names(found: &Conversion) -> Vec<&str> {
    found.classes.iter().map(Ec2NodeClass::name).collect()
}

fn class_of<'c>(found: &'c Conversion, pool: &str) -> &'c Ec2NodeClass {
    let pool = found.pools.iter().find(|found| found.name() == pool).expect("a pool");
    let reference = &pool.spec.template.spec.node_class_ref;
    found.classes.iter().find(|class| class.reference() == *reference).expect("its class")
}

#[test]
fn the_class_of_an_inline_provider_takes_no_name_of_another() {
    let inline = provisioner(INLINE).replace("general", "default");
    let other = provisioner("{providerRef: {name: default}}");
    let template = template(TEMPLATE);
    for order in [[&inline, &other, &template], [&template, &other, &inline]] {
        let found = converted(&order.map(String::as_str).join("\n---\n"));
        assert_eq!(class_names(&found), ["default", "default-2"]);
        let tags = |pool: &str| class_of(&found, pool).spec.subnet_selector_terms[0].tags.keys().next().cloned();
        assert_eq!((tags("default").as_deref(), tags("general").as_deref()), (Some("a"), Some("c")));
        let expected = "Provisioner default: spec.provider becomes EC2NodeClass default-2, because EC2NodeClass default is another";
        assert_eq!(notes(&found), [expected]);
    }
    // The template may be in the cluster and not among the manifests.
    let found = converted(&[&*inline, &*other].join("\n---\n"));
    assert_eq!(class_names(&found), ["default-2"]);
}

#[test]
fn a_copy_of_a_class_takes_no_name_of_another() {
    let pools = [beta("a", "{maxPods: 20}"), beta("b", "{maxPods: 30}")].join("---\n");
    let taken = BETA_CLASS.replace("name: default", "name: default-b").replace("subnet-1", "subnet-2");
    let found = converted(&format!("{pools}---\n{BETA_CLASS}---\n{taken}"));
    assert_eq!(class_names(&found), ["default", "default-b", "default-b-2"]);
    let class = class_of(&found, "b");
    assert_eq!((class.name(), &*class.spec.subnet_selector_terms[0].id), ("default-b-2", "subnet-1"));
}

#[test]
fn the_same_object_twice_is_an_error() {
    for (yaml, object) in [
        (provisioner("{}"), "Provisioner general"),
        (template(TEMPLATE), "AWSNodeTemplate default"),
        (beta("a", "{}"), "NodePool a"),
        (BETA_CLASS.to_owned(), "EC2NodeClass default"),
    ] {
        let error = try_convert(&format!("{yaml}\n---\n{yaml}"), true).expect_err(&yaml);
        assert_eq!(error, ConvertError::Duplicate { object: object.to_owned() });
        assert_eq!(error.to_string(), format!("{object}: metadata.name: the same object was given already"));
    }
}

#[test]
fn of_an_object_in_two_versions_the_newer_counts() {
    let old_pool = provisioner(INLINE).replace("general", "a");
    let old_class = template("{subnetSelector: {c: d}, securityGroupSelector: {c: d}}");
    let (pool, class) = (beta("a", "{maxPods: 20}"), BETA_CLASS.to_owned());
    for order in [[&old_pool, &old_class, &pool, &class], [&pool, &class, &old_pool, &old_class]] {
        let found = converted(&order.map(String::as_str).join("\n---\n"));
        assert_eq!((found.pools.len(), class_names(&found)), (1, vec!["default"]));
        assert_eq!(class_of(&found, "a").spec.role, "node");
        let expected = [
            "AWSNodeTemplate default: is left out, because EC2NodeClass default is among the manifests and counts",
            "Provisioner a: is left out, because NodePool a is among the manifests and counts",
        ];
        assert_eq!(notes(&found), expected);
    }
}
