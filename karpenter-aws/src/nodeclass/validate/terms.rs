use super::Broken;
use crate::nodeclass::{Alias, AmiSelectorTerm, Ec2NodeClassSpec, Tags};

const MAX_TERMS: usize = 30;
const MAX_TAGS: usize = 20;
const MAX_ALIAS_LETTERS: usize = 30;

impl Broken {
    /// The terms that select something.
    ///
    /// An id that stands beside tags in one term is let pass if another term is in order: Karpenter's definition lets it
    /// pass, and clusters may hold such classes. The id counts.
    pub(super) fn terms(&mut self, spec: &Ec2NodeClassSpec) {
        let field = "spec.subnetSelectorTerms";
        let terms = &spec.subnet_selector_terms;
        self.count(terms.len(), 1, field);
        self.all(terms, field, "needs tags or id", |t| !t.tags.is_empty() || !t.id.is_empty());
        self.not_all(terms, field, "id stands alone", |t| !t.id.is_empty() && !t.tags.is_empty());
        self.all(terms, field, "id is none of a subnet", |t| is_id(&t.id, "subnet-", false));
        self.all(terms, field, TAGS, |t| are_tags(&t.tags));

        let field = "spec.securityGroupSelectorTerms";
        let terms = &spec.security_group_selector_terms;
        self.count(terms.len(), 1, field);
        self.all(terms, field, "needs tags, id or name", |t| {
            !t.tags.is_empty() || !t.id.is_empty() || !t.name.is_empty()
        });
        self.not_all(terms, field, "id stands alone", |t| {
            !t.id.is_empty() && (!t.tags.is_empty() || !t.name.is_empty())
        });
        self.not_all(terms, field, "name stands alone", |t| {
            !t.name.is_empty() && (!t.tags.is_empty() || !t.id.is_empty())
        });
        self.all(terms, field, "id is none of a security group", |t| is_id(&t.id, "sg-", false));
        self.all(terms, field, TAGS, |t| are_tags(&t.tags));

        self.reservation_terms(spec);
        self.ami_terms(&spec.ami_selector_terms);
    }

    fn reservation_terms(&mut self, spec: &Ec2NodeClassSpec) {
        let field = "spec.capacityReservationSelectorTerms";
        let terms = &spec.capacity_reservation_selector_terms;
        self.count(terms.len(), 0, field);
        self.all(terms, field, "needs tags, id or instanceMatchCriteria", |t| {
            !t.tags.is_empty() || !t.id.is_empty() || t.instance_match_criteria.is_some()
        });
        if !terms.is_empty() {
            self.not_all(terms, field, "id stands alone", |t| {
                !t.id.is_empty()
                    && (!t.tags.is_empty() || !t.owner_id.is_empty() || t.instance_match_criteria.is_some())
            });
        }
        self.all(terms, field, "id is none of a capacity reservation", |t| is_id(&t.id, "cr-", true));
        self.all(terms, field, "ownerID is not of twelve digits", |t| {
            t.owner_id.is_empty() || (t.owner_id.len() == 12 && t.owner_id.bytes().all(|b| b.is_ascii_digit()))
        });
        self.all(terms, field, TAGS, |t| are_tags(&t.tags));
        if let Some(selector) = &spec.placement_group_selector {
            let field = "spec.placementGroupSelector";
            self.check(selector.name.is_some() != selector.id.is_some(), field, "needs one of name and id");
            self.check(selector.name.as_deref() != Some(""), field, "name must not be empty");
            self.check(
                selector.id.as_deref().is_none_or(|id| !id.is_empty() && is_id(id, "pg-", true)),
                field,
                "id is none of a placement group",
            );
        }
    }

    fn ami_terms(&mut self, terms: &[AmiSelectorTerm]) {
        let field = "spec.amiSelectorTerms";
        self.count(terms.len(), 1, field);
        self.all(terms, field, "needs tags, id, name, alias or ssmParameter", |t| {
            !t.tags.is_empty() || [&t.id, &t.name, &t.alias, &t.ssm_parameter].iter().any(|text| !text.is_empty())
        });
        let selects_by_words = |t: &AmiSelectorTerm| !t.tags.is_empty() || !t.name.is_empty() || !t.owner.is_empty();
        self.all(terms, field, "id stands alone", |t| t.id.is_empty() || (t.alias.is_empty() && !selects_by_words(t)));
        self.all(terms, field, "alias stands alone", |t| {
            t.alias.is_empty() || (t.id.is_empty() && !selects_by_words(t))
        });
        let has_alias = terms.iter().any(|t| !t.alias.is_empty());
        self.check(!has_alias || terms.len() == 1, field, "an alias is the only term");
        self.all(terms, field, "id is none of an image", |t| is_id(&t.id, "ami-", false));
        self.all(terms, field, TAGS, |t| are_tags(&t.tags));
        for term in terms.iter().filter(|term| !term.alias.is_empty()) {
            match term.alias.parse::<Alias>() {
                Ok(alias) => {
                    let is_latest = !alias.family.is_windows() || alias.is_latest();
                    self.check(is_latest, field, "an alias of Windows is of the version latest");
                }
                Err(error) => self.check(false, field, error.to_string()),
            }
            self.check(term.alias.len() <= MAX_ALIAS_LETTERS, field, "the alias is too long");
        }
    }

    fn count(&mut self, count: usize, min: usize, field: &str) {
        self.check((min..=MAX_TERMS).contains(&count), field, format!("{count} terms, not from {min} to {MAX_TERMS}"));
    }

    fn all<T>(&mut self, terms: &[T], field: &str, message: &str, holds: impl Fn(&T) -> bool) {
        if let Some(at) = terms.iter().position(|term| !holds(term)) {
            self.check(false, &format!("{field}[{at}]"), message);
        }
    }

    fn not_all<T>(&mut self, terms: &[T], field: &str, message: &str, is_wrong: impl Fn(&T) -> bool) {
        self.check(terms.is_empty() || !terms.iter().all(is_wrong), field, message);
    }
}

const TAGS: &str = "tags are more than 20, or a key or value is empty";

fn are_tags(tags: &Tags) -> bool {
    tags.len() <= MAX_TAGS && tags.iter().all(|(key, value)| !key.is_empty() && !value.is_empty())
}

/// Whether an id begins as it must. Of some kinds, Karpenter's definition looks for the id anywhere in the text.
fn is_id(id: &str, start: &str, is_whole: bool) -> bool {
    let is_letter = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    if id.is_empty() {
        return true;
    }
    if is_whole {
        return id.strip_prefix(start).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_letter));
    }
    id.match_indices(start).any(|(at, _)| id.as_bytes().get(at + start.len()).copied().is_some_and(is_letter))
}
