//! The tags of what is bought.

use std::collections::{BTreeMap, BTreeSet};

use crate::ec2::{Tags, instance::Ec2Instance};

/// The tag that names the pool of a machine.
pub(crate) const NODE_POOL: &str = "karpenter.sh/nodepool";
/// The tag that names the claim of a machine.
pub(crate) const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// The tag that names the class of a machine, a template or a profile.
pub(crate) const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// The tag that names the cluster.
pub(crate) const CLUSTER_NAME: &str = "eks:eks-cluster-name";
/// The tag that names the uid of the claim that a machine was bought for.
pub(crate) const CLAIM_UID: &str = "karpenter.k8s.aws/nodeclaim-uid";
/// The tag that names the uids of the claims that some machines were bought for together.
pub(crate) const CLAIM_UIDS: &str = "karpenter.k8s.aws/nodeclaim-uids";
/// The tag that EC2 writes on the machines of a fleet.
pub(crate) const FLEET: &str = "aws:ec2:fleet-id";
/// The characters that the value of a tag may have.
pub(crate) const MAX_VALUE: usize = 256;

/// The tag by which a thing belongs to a cluster.
pub(crate) fn owned_by(cluster: &str) -> String {
    format!("kubernetes.io/cluster/{cluster}")
}

/// Whether a tag is not for users to set: it says whose a thing is.
pub(crate) fn is_restricted(key: &str) -> bool {
    let is_own = [NODE_POOL, NODE_CLAIM, NODE_CLASS, CLUSTER_NAME, CLAIM_UID, CLAIM_UIDS].contains(&key);
    is_own || key.starts_with("kubernetes.io/cluster/")
}

/// The tags of everything that is made for a class: its own, and over them those that say whose it is.
pub(crate) fn of_class(cluster: &str, class: &str, own: &Tags) -> Tags {
    let mut out = own.clone();
    out.insert(owned_by(cluster), "owned".to_owned());
    out.insert(CLUSTER_NAME.to_owned(), cluster.to_owned());
    out.insert(NODE_CLASS.to_owned(), class.to_owned());
    out
}

/// The tags of what is bought for a pool.
pub(crate) fn of_pool(cluster: &str, class: &str, pool: &str, own: &Tags) -> Tags {
    let mut out = of_class(cluster, class, own);
    out.insert(NODE_POOL.to_owned(), pool.to_owned());
    out
}

/// The uids of the claims that a machine was bought for with others; `None` if its tags do not tell.
pub(crate) fn uids_of(machine: &Ec2Instance) -> Option<std::str::Split<'_, char>> {
    machine.tags.get(CLAIM_UIDS).map(|uids| uids.split(' '))
}

/// The claim of each machine, as far as its tags tell. Machines that were bought together are dealt by the order of
/// their ids, which says nothing once one of them is not there any more.
pub(crate) fn claims_of(machines: &[Ec2Instance]) -> BTreeMap<&str, &str> {
    let mut out: BTreeMap<&str, &str> = BTreeMap::new();
    // By the fleet and the uids that it is for.
    let mut together: BTreeMap<(&str, &str), Vec<&Ec2Instance>> = BTreeMap::new();
    for machine in machines {
        let tag = |key: &str| machine.tags.get(key).map(String::as_str);
        match (tag(CLAIM_UID), tag(CLAIM_UIDS)) {
            (Some(uid), _) => {
                out.insert(&machine.id, uid);
            }
            (None, Some(uids)) => together.entry((tag(FLEET).unwrap_or(""), uids)).or_default().push(machine),
            (None, None) => {}
        }
    }
    let mut known: BTreeSet<&str> = out.values().copied().collect();
    for mut machines in together.into_values() {
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        let uids = uids_of(machines[0]).into_iter().flatten();
        let uids: Vec<&str> = uids.filter(|uid| !known.contains(uid)).collect();
        if uids.len() == machines.len() {
            known.extend(&uids);
            out.extend(machines.into_iter().map(|machine| machine.id.as_str()).zip(uids));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(id: &str, tags: &[(&str, &str)]) -> Ec2Instance {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Ec2Instance { id: id.to_owned(), tags, ..Ec2Instance::default() }
    }

    #[test]
    fn tags_that_say_whose_it_is_win() {
        let own = Tags::from([(NODE_POOL.to_owned(), "mine".to_owned()), ("team".to_owned(), "web".to_owned())]);
        let tags = of_pool("test", "class", "general", &own);
        assert_eq!((tags[NODE_POOL].as_str(), tags["team"].as_str()), ("general", "web"));
        assert_eq!(tags["kubernetes.io/cluster/test"], "owned");
    }

    #[test]
    fn machines_that_were_bought_together_are_dealt_in_order() {
        let together = [(CLAIM_UIDS, "u1 u2"), (FLEET, "f")];
        let machines = [
            machine("i-2", &together),
            machine("i-1", &together),
            machine("i-3", &[(CLAIM_UID, "u3")]),
            machine("i-4", &[]),
        ];
        assert_eq!(claims_of(&machines), BTreeMap::from([("i-1", "u1"), ("i-2", "u2"), ("i-3", "u3")]));
        assert_eq!(claims_of(&machines[..1]), BTreeMap::new(), "one of two is gone: which?");
    }

    #[test]
    fn a_machine_that_was_told_its_claim_leaves_the_rest_to_the_others() {
        let together = [(CLAIM_UIDS, "u1 u2"), (FLEET, "f")];
        let told = [together[0], together[1], (CLAIM_UID, "u1")];
        let machines = [machine("i-1", &together), machine("i-2", &told)];
        assert_eq!(claims_of(&machines), BTreeMap::from([("i-1", "u2"), ("i-2", "u1")]));
    }
}
