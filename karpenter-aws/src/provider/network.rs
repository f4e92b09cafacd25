use std::collections::BTreeMap;

use karpenter_core::Timestamp;

use crate::{
    api::{ApiError, AwsApi},
    ec2::{
        Filter, Tags,
        network::{PlacementGroup, SecurityGroup, Subnet},
    },
    nodeclass::{self, PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm},
};

/// The filters that select by these tags, all of which must be there.
pub(crate) fn tag_filters(tags: &Tags) -> Vec<Filter> {
    tags.iter().map(|(key, value)| Filter::tag(key, value)).collect()
}

/// The lists of filters that select subnets, each a query of its own.
fn subnet_queries(terms: &[SubnetSelectorTerm]) -> Vec<Vec<Filter>> {
    let ids: Vec<&str> = terms.iter().map(|term| term.id.as_str()).filter(|id| !id.is_empty()).collect();
    let by_tags = terms.iter().filter(|term| term.id.is_empty() && !term.tags.is_empty());
    let mut out: Vec<Vec<Filter>> = by_tags.map(|term| tag_filters(&term.tags)).collect();
    if !ids.is_empty() {
        out.push(vec![Filter::new("subnet-id", ids)]);
    }
    out
}

/// The lists of filters that select security groups, each a query of its own.
fn security_group_queries(terms: &[SecurityGroupSelectorTerm]) -> Vec<Vec<Filter>> {
    let (mut ids, mut names, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for term in terms {
        match term {
            term if !term.id.is_empty() => ids.push(term.id.as_str()),
            term if !term.name.is_empty() => names.push(term.name.as_str()),
            term if !term.tags.is_empty() => out.push(tag_filters(&term.tags)),
            _ => {}
        }
    }
    for (attribute, values) in [("group-id", ids), ("group-name", names)] {
        if !values.is_empty() {
            out.push(vec![Filter::new(attribute, values)]);
        }
    }
    out
}

/// The subnets that any term selects, those with most free addresses first.
pub(crate) async fn find_subnets(api: &dyn AwsApi, terms: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>, ApiError> {
    let mut found: BTreeMap<String, Subnet> = BTreeMap::new();
    for filters in subnet_queries(terms) {
        found.extend(api.describe_subnets(&filters).await?.into_iter().map(|subnet| (subnet.id.clone(), subnet)));
    }
    let mut subnets: Vec<Subnet> = found.into_values().collect();
    subnets.sort_by_key(|subnet| std::cmp::Reverse(subnet.free_addresses));
    Ok(subnets)
}

/// The security groups that any term selects, by their ids.
pub(crate) async fn find_security_groups(
    api: &dyn AwsApi,
    terms: &[SecurityGroupSelectorTerm],
) -> Result<Vec<SecurityGroup>, ApiError> {
    let mut found: BTreeMap<String, SecurityGroup> = BTreeMap::new();
    for filters in security_group_queries(terms) {
        let groups = api.describe_security_groups(&filters).await?;
        found.extend(groups.into_iter().map(|group| (group.id.clone(), group)));
    }
    Ok(found.into_values().collect())
}

/// The placement group that is selected, if there is such a one.
pub(crate) async fn find_placement_group(
    api: &dyn AwsApi,
    selector: &PlacementGroupSelector,
) -> Result<Option<PlacementGroup>, ApiError> {
    let by_id = selector.id.as_ref().map(|id| Filter::new("group-id", [id.as_str()]));
    let by_name = || selector.name.as_ref().map(|name| Filter::new("group-name", [name.as_str()]));
    let Some(named) = by_id.or_else(by_name) else { return Ok(None) };
    let found = api.describe_placement_groups(&[named, Filter::new("state", ["available"])]).await?;
    Ok(found.into_iter().next())
}

/// What is known of free addresses: what EC2 said last, less what was launched since.
///
/// EC2 counts an address only when a machine has it, and more than one launch may be on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeAddresses(BTreeMap<String, Free>);

#[derive(Clone, Copy, Debug, Default)]
struct Free {
    count: i64,
    /// When EC2 said so.
    since: Timestamp,
}

impl FreeAddresses {
    /// What EC2 says now.
    pub(crate) fn refresh(&mut self, subnets: &[Subnet], now: Timestamp) {
        let news = subnets.iter().map(|s| (s.id.clone(), Free { count: s.free_addresses, since: now }));
        self.0.extend(news);
    }

    /// The subnet of each zone that has most free addresses; the first of several.
    pub(crate) fn choose<'s>(
        &self,
        subnets: impl IntoIterator<Item = &'s nodeclass::Subnet>,
    ) -> BTreeMap<String, String> {
        let mut best: BTreeMap<&str, (&str, i64)> = BTreeMap::new();
        for subnet in subnets {
            let count = self.0.get(&subnet.id).map_or(0, |free| free.count);
            let entry = best.entry(&subnet.zone).or_insert((&subnet.id, count));
            if count > entry.1 {
                *entry = (&subnet.id, count);
            }
        }
        best.into_iter().map(|(zone, (id, _))| (zone.to_owned(), id.to_owned())).collect()
    }

    /// So many addresses are about to be taken.
    pub(crate) fn take(&mut self, subnet: &str, addresses: i64) {
        let free = self.0.entry(subnet.to_owned()).or_default();
        free.count = free.count.saturating_sub(addresses);
    }

    /// Addresses that were taken at that time were not used after all. EC2 may have said so by itself since.
    pub(crate) fn give_back(&mut self, subnet: &str, addresses: i64, taken: Timestamp) {
        if let Some(free) = self.0.get_mut(subnet).filter(|free| free.since <= taken) {
            free.count = free.count.saturating_add(addresses);
        }
    }

    /// EC2 says that there is none left: what was taken before is not given back, and any other subnet is better, even one
    /// of which more was taken than there was, because most machines need less than they may.
    pub(crate) fn exhaust(&mut self, subnet: &str, now: Timestamp) {
        self.0.insert(subnet.to_owned(), Free { count: i64::MIN, since: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{DISCOVERY, MemoryAws};

    fn tags(value: &str) -> Tags {
        Tags::from([(DISCOVERY.to_owned(), value.to_owned())])
    }

    fn subnet(id: &str, zone: &str) -> nodeclass::Subnet {
        nodeclass::Subnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: String::new() }
    }

    #[tokio::test]
    async fn subnets_are_found_by_any_term_and_come_with_most_addresses_first() {
        let aws = MemoryAws::small();
        aws.with(|state| state.subnets[2].free_addresses = 900);
        let by_id = |id: &str| SubnetSelectorTerm { id: id.to_owned(), ..SubnetSelectorTerm::default() };
        let by_tags = SubnetSelectorTerm { tags: tags("*"), ..SubnetSelectorTerm::default() };
        let ids = |found: Vec<Subnet>| found.into_iter().map(|s| s.id).collect::<Vec<_>>();
        let found = find_subnets(&aws, &[by_id("subnet-2"), by_tags]).await.expect("answers");
        assert_eq!(ids(found), ["subnet-3", "subnet-1", "subnet-2"]);
        let found = find_subnets(&aws, &[by_id("subnet-2"), by_id("subnet-1")]).await.expect("answers");
        assert_eq!((ids(found), aws.count("DescribeSubnets")), (vec!["subnet-1".to_owned(), "subnet-2".to_owned()], 3));
        assert!(find_subnets(&aws, &[]).await.expect("answers").is_empty());
    }

    #[tokio::test]
    async fn the_id_of_a_term_beats_its_name_and_the_name_its_tags() {
        let aws = MemoryAws::small();
        let term = |id: &str, name: &str, value: &str| SecurityGroupSelectorTerm {
            id: id.to_owned(),
            name: name.to_owned(),
            tags: tags(value),
        };
        for (term, count) in
            [(term("sg-1", "other", "other"), 1), (term("", "nodes", "other"), 1), (term("", "", "test"), 1)]
        {
            assert_eq!(
                find_security_groups(&aws, std::slice::from_ref(&term)).await.expect("answers").len(),
                count,
                "{term:?}"
            );
        }
        assert!(find_security_groups(&aws, &[term("sg-2", "nodes", "test")]).await.expect("answers").is_empty());
    }

    #[test]
    fn launches_on_their_way_count_until_ec2_says_something_new() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let known = |id: &str, free_addresses| Subnet { id: id.to_owned(), free_addresses, ..Subnet::default() };
        let (both, mut free) = ([subnet("s1", "a"), subnet("s2", "a")], FreeAddresses::default());
        let chosen = |free: &FreeAddresses| free.choose(&both)["a"].clone();
        assert_eq!(chosen(&free), "s1", "the first of equals");
        free.refresh(&[known("s1", 100), known("s2", 80)], at(0));
        assert_eq!(chosen(&free), "s1");
        free.take("s1", 30);
        assert_eq!(chosen(&free), "s2");
        free.give_back("s1", 30, at(1));
        assert_eq!(chosen(&free), "s1");
        free.take("s1", 30);
        free.refresh(&[known("s1", 100), known("s2", 120)], at(10));
        free.give_back("s1", 30, at(5));
        assert_eq!(chosen(&free), "s2", "what EC2 said later is not added to");
        free.take("s2", 30);
        free.exhaust("s2", at(12));
        free.give_back("s2", 30, at(11));
        free.take("s1", 130);
        assert_eq!(chosen(&free), "s1", "the other one has none");
        free.refresh(&[known("s2", 1)], at(13));
        assert_eq!(chosen(&free), "s2");
    }
}
