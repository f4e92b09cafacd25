use crate::nodeclass::{AmiSelectorTerm, Tags};

/// A question to DescribeImages, which finds all that is available, deprecated images too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageQuery {
    /// Images by their ids, whoever owns them.
    Ids(Vec<String>),
    /// Images of a name and tags.
    Named {
        /// The name, with wildcards; `None` for any.
        name: Option<String>,
        /// The tags, where `*` stands for any value.
        tags: Tags,
        /// Who may own them; empty for anybody.
        owners: Vec<String>,
    },
}

/// The questions for the terms of a class that are not aliases: one for all ids together, and one for each other term.
///
/// `resolved` says what the SSM parameter of a term holds, `None` if there is no such parameter. What is not the id of
/// an image is left out.
pub fn queries(terms: &[AmiSelectorTerm], resolved: impl Fn(&str) -> Option<String>) -> Vec<ImageQuery> {
    let mut ids = Vec::new();
    let mut out = Vec::new();
    for term in terms {
        if !term.id.is_empty() {
            ids.push(term.id.clone());
        } else if !term.ssm_parameter.is_empty() {
            ids.extend(resolved(&term.ssm_parameter).filter(|id| id.starts_with("ami-")));
        } else if term.alias.is_empty() {
            out.push(named(term));
        }
    }
    if !ids.is_empty() {
        out.push(ImageQuery::Ids(ids));
    }
    out
}

/// Names are looked for among one's own images and those of Amazon, unless an owner is written: anybody can name an
/// image. Tags are one's own, so that they need no owner.
fn named(term: &AmiSelectorTerm) -> ImageQuery {
    let owners = match (term.owner.is_empty(), term.name.is_empty()) {
        (false, _) => vec![term.owner.clone()],
        (true, false) => vec!["self".to_owned(), "amazon".to_owned()],
        (true, true) => Vec::new(),
    };
    let name = (!term.name.is_empty()).then(|| term.name.clone());
    ImageQuery::Named { name, tags: term.tags.clone(), owners }
}
