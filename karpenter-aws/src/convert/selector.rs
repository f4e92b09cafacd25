//! The selectors of node templates: maps of tags in which some keys stand for ids, names and owners.

use std::collections::BTreeMap;

use crate::nodeclass::{AmiSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm, Tags};

/// The keys that stand for ids.
const IDS: [&str; 2] = ["aws-ids", "aws::ids"];

/// A selector, read.
pub(super) struct Selector {
    ids: Vec<String>,
    names: Vec<String>,
    owners: Vec<String>,
    left_out: Vec<String>,
    /// Tags that are alternatives of each other: a value with commas stood for any of its parts.
    tags: Vec<Tags>,
}

impl Selector {
    pub(super) fn read(selector: &BTreeMap<String, String>) -> Self {
        let mut out = Self {
            ids: Vec::new(),
            names: Vec::new(),
            owners: Vec::new(),
            left_out: Vec::new(),
            tags: vec![Tags::new()],
        };
        for (key, text) in selector {
            let values = text.split(',').map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
            match key.as_str() {
                key if IDS.contains(&key) => out.ids.extend(values),
                "aws::name" => out.names.extend(values),
                "aws::owners" => out.owners.extend(values),
                _ => out.tags = with(&out.tags, key, &values.collect::<Vec<_>>()),
            }
        }
        out.tags.retain(|tags| !tags.is_empty());
        if !out.ids.is_empty() {
            out.left_out = selector.keys().filter(|key| !IDS.contains(&key.as_str())).cloned().collect();
            out.tags.clear();
        }
        out
    }

    /// The keys that were conditions on ids, which stand alone in the terms of today.
    pub(super) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    pub(super) fn subnets(self) -> Vec<SubnetSelectorTerm> {
        let ids = self.ids.into_iter().map(|id| SubnetSelectorTerm { id, tags: Tags::new() });
        ids.chain(self.tags.into_iter().map(|tags| SubnetSelectorTerm { tags, id: String::new() })).collect()
    }

    pub(super) fn security_groups(self) -> Vec<SecurityGroupSelectorTerm> {
        let ids = self.ids.into_iter().map(|id| SecurityGroupSelectorTerm { id, ..Default::default() });
        let tags = self.tags.into_iter().map(|tags| SecurityGroupSelectorTerm { tags, ..Default::default() });
        ids.chain(tags).collect()
    }

    /// A term for each id; else one for each owner, name and alternative of tags. Who owned images was settled where it
    /// was not written: oneself, or Amazon.
    pub(super) fn images(self) -> Vec<AmiSelectorTerm> {
        if !self.ids.is_empty() {
            return self.ids.into_iter().map(AmiSelectorTerm::of_id).collect();
        }
        let or = |items: Vec<String>, none: &[&str]| {
            if items.is_empty() { none.iter().map(|item| (*item).to_owned()).collect() } else { items }
        };
        let owners = or(self.owners, &["self", "amazon"]);
        let names = or(self.names, &[""]);
        let tags = if self.tags.is_empty() { vec![Tags::new()] } else { self.tags };
        let mut out = Vec::new();
        for owner in &owners {
            for name in &names {
                out.extend(tags.iter().map(|tags| AmiSelectorTerm {
                    owner: owner.clone(),
                    name: name.clone(),
                    tags: tags.clone(),
                    ..AmiSelectorTerm::default()
                }));
            }
        }
        out
    }
}

fn with(all: &[Tags], key: &str, values: &[String]) -> Vec<Tags> {
    let one = |tags: &Tags, value: &String| {
        let mut tags = tags.clone();
        tags.insert(key.to_owned(), value.clone());
        tags
    };
    all.iter().flat_map(|tags| values.iter().map(move |value| one(tags, value))).collect()
}
