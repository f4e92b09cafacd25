//! Rules about neighbours: spread constraints, affinity and anti-affinity between pods.
//!
//! Rules over zones and other labels that nodes share are settled before the search: each class of pods is divided
//! among domains, and the pods of a domain then ask for a node of it. Rules over single nodes stay with the pods, and
//! the search counts them node by node. The order of binding that makes a plan valid is this: pods that others want to
//! be near to come first, then each constrained group; pods that a spread counts but that do not have it come last.

mod allot;
mod bundle;
mod domains;
mod grants;
mod near;
mod neighbours;
mod offers;
mod portion;
mod quota;
mod rules;
mod seek;
mod selectors;
mod settle;
mod spreading;
mod standing;
mod whereabouts;
mod wishes;

pub(super) use allot::allot;
pub(super) use domains::{Answered, Named, count_all_named, domains_of_classes, out_of_reach, within_reach};
pub(super) use grants::{Grants, Ledger, Nodes, has_endless_domains, labels_of_rules, most_domains};
pub(super) use neighbours::{Counted, Manners, Neighbours};
pub(super) use portion::{Allotment, Blocked, Domain, Latitude, Lessons, Member, Portion, PortionKey, Subject};
pub(super) use rules::{Neighbourhood, Rules, Spread, Term};
pub(super) use selectors::{SelectorId, Selectors};
pub(super) use standing::Standing;
pub(super) use wishes::Ladders;
