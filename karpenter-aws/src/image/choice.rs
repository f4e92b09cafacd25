use std::{cmp::Reverse, collections::BTreeMap};

use karpenter_core::{Requirement, Requirements, Timestamp, labels as core_labels};

use super::Variant;
use crate::{ec2::Image, nodeclass::Ami};

/// An image that was found, and what it is made for as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The image.
    pub image: Image,
    /// Each of them is a choice of its own. None means any machine of the image's architecture.
    pub variants: Vec<Variant>,
}

/// The images of a class, as its status has them: the best of each set of requirements, the newest first.
///
/// The best is one that is not deprecated, then the newest, then that of the greatest name. An image of an architecture
/// that Kubernetes does not know is left out.
pub fn chosen(candidates: &[Candidate], now: Timestamp) -> Vec<Ami> {
    let mut best: BTreeMap<Requirements, &Image> = BTreeMap::new();
    for candidate in candidates {
        let image = &candidate.image;
        for requirements in requirements(candidate) {
            let rank = |image: &Image| (!image.is_deprecated(now), image.creation_date, image.name.clone());
            let place = best.entry(requirements).or_insert(image);
            if rank(place) < rank(image) {
                *place = image;
            }
        }
    }
    let mut out: Vec<_> = best.into_iter().collect();
    out.sort_by_key(|(_, image)| (Reverse(image.creation_date), image.image_id.clone()));
    out.into_iter().map(|(requirements, image)| written(&requirements, image, now)).collect()
}

fn requirements(candidate: &Candidate) -> Vec<Requirements> {
    let arch = match candidate.image.architecture.as_str() {
        "x86_64" => "amd64",
        "arm64" => "arm64",
        _ => return Vec::new(),
    };
    let with_arch = |mut requirements: Requirements| {
        requirements.add(core_labels::ARCH, Requirement::one_of([arch]));
        requirements
    };
    match candidate.variants.as_slice() {
        [] => vec![with_arch(Requirements::new())],
        variants => variants.iter().map(|variant| with_arch(variant.requirements())).collect(),
    }
}

/// Requirements go by the length of their keys, then by the keys.
fn written(requirements: &Requirements, image: &Image, now: Timestamp) -> Ami {
    let mut requirements = requirements.to_expressions();
    requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
    Ami { id: image.image_id.clone(), name: image.name.clone(), deprecated: image.is_deprecated(now), requirements }
}

/// The image that nodes of an instance type start from: the first whose requirements its labels can meet.
pub fn image_of<'a>(labels: &Requirements, images: &'a [Ami]) -> Option<&'a Ami> {
    images.iter().find(|image| {
        let needed: Requirements = image.requirements.iter().collect();
        let lacks = needed.iter().any(|(key, r)| labels.get(key).is_none() && !r.admits_absence());
        !lacks && labels.conflict(&needed).is_none()
    })
}
