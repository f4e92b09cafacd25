//! The cluster as it would be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Place, Snapshot};
use crate::api::ObjectKey;

impl Snapshot {
    /// The cluster without some places, by index, of whose pods these, by index, want other places.
    pub(crate) fn without_places(&self, gone: &BTreeSet<usize>, moving: impl IntoIterator<Item = usize>) -> Self {
        let stays = |(index, _): &(usize, &Arc<Place>)| !gone.contains(index);
        let places = self.places.iter().enumerate().filter(stays).map(|(_, place)| place.clone()).collect();
        let mut pending: Vec<usize> = self.pending.iter().copied().chain(moving).collect();
        pending.sort_unstable();
        Self { objects: self.objects.clone(), pending, places }
    }

    /// The cluster in which places that are not ready for pods take none.
    pub(crate) fn with_ready_places(&self) -> Self {
        let mut places = self.places.clone();
        for place in places.iter_mut().filter(|place| !place.is_initialized) {
            Arc::make_mut(place).is_closed = true;
        }
        Self { places, ..self.clone() }
    }

    /// The cluster once pods are at the places, by name, that were found for them, with further places, and with none of its
    /// pods waiting.
    pub(crate) fn settled(&self, found: &BTreeMap<String, Vec<ObjectKey>>, further: Vec<Place>) -> Self {
        let mut places = self.places.clone();
        for place in &mut places {
            if let Some(pods) = found.get(&place.name) {
                let place = Arc::make_mut(place);
                for pod in pods.iter().filter_map(|key| self.pod(key)) {
                    place.add_pod(pod, &self.objects.storage);
                }
            }
        }
        places.extend(further.into_iter().map(Arc::new));
        places.sort_by(|a, b| a.name.cmp(&b.name));
        Self { objects: self.objects.clone(), pending: Vec::new(), places }
    }
}
