//! What the API server tells of a kind of object, as events of the engine.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::StreamExt as _;
use karpenter_core::{
    api::ObjectKey,
    engine::{Event, Object, ObjectRef},
};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::sync::mpsc::Sender;

use crate::kinds::{Seen, Unread, Watched};

/// How many objects are asked for at a time.
const PAGE: u32 = 100;

/// What a watch has to tell.
#[derive(Debug)]
pub(crate) enum News {
    Event(Event),
    /// All objects of the kind have been told, for the first time or once more.
    Listed(&'static str),
    /// The watch was lost and begins anew.
    Lost {
        kind: &'static str,
        error: String,
    },
    /// An object cannot be read. What was known of it before still counts, unless an event says what counts now.
    Unreadable {
        object: String,
        error: String,
        /// The pod with its uid, if it is one that waits for a node.
        waiting: Option<(ObjectKey, String)>,
    },
}

/// Tells of all objects of a kind for as long as somebody listens. A watch that was lost begins anew, with longer and
/// longer waits; objects that went meanwhile are told to be gone once all others have been told.
pub(crate) async fn watch<T: Watched>(client: Client, listener: Sender<News>) {
    let config = watcher::Config::default().page_size(PAGE);
    let mut events = watcher(Api::<Seen<T>>::all(client), config).default_backoff().boxed();
    let mut known = Known::default();
    while let Some(event) = events.next().await {
        let news = match event {
            Ok(event) => known.take(event),
            Err(error) => vec![News::Lost { kind: T::KIND, error: error.to_string() }],
        };
        for news in news {
            if listener.send(news).await.is_err() {
                return;
            }
        }
    }
}

/// The objects of a kind that have been told, each with whether it was told again since the last list began.
#[derive(Debug, Default)]
struct Known(BTreeMap<(String, String), (ObjectRef, bool)>);

impl Known {
    fn take<T: Watched>(&mut self, event: watcher::Event<Seen<T>>) -> Vec<News> {
        match event {
            watcher::Event::Init => {
                self.0.values_mut().for_each(|(_, is_told)| *is_told = false);
                Vec::new()
            }
            watcher::Event::InitApply(seen) | watcher::Event::Apply(seen) => self.applied(seen),
            watcher::Event::Delete(seen) => {
                let gone = self.0.remove(&key(&seen));
                gone.map(|(reference, _)| News::Event(Event::Deleted(reference))).into_iter().collect()
            }
            watcher::Event::InitDone => {
                let gone: Vec<_> = self.0.extract_if(.., |_, (_, is_told)| !*is_told).collect();
                let gone = gone.into_iter().map(|(_, (reference, _))| News::Event(Event::Deleted(reference)));
                gone.chain([News::Listed(T::KIND)]).collect()
            }
        }
    }

    fn applied<T: Watched>(&mut self, seen: Seen<T>) -> Vec<News> {
        let key = key(&seen);
        match seen.object {
            Ok(object) => vec![self.told(key, Arc::clone(&object).into_object())],
            Err(Unread { error, remains, is_waiting }) => {
                if let Some((_, is_told)) = self.0.get_mut(&key) {
                    *is_told = true;
                }
                let (namespace, name) = &key;
                let place = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
                let object = format!("{} {place}", T::KIND);
                let uid = seen.meta.uid.unwrap_or_default();
                let waiting = is_waiting.then(|| (ObjectKey::new(namespace, name), uid));
                let remains = remains.map(|remains| self.told(key, remains));
                [News::Unreadable { object, error, waiting }].into_iter().chain(remains).collect()
            }
        }
    }

    fn told(&mut self, key: (String, String), object: Object) -> News {
        self.0.insert(key, (object.reference(), true));
        News::Event(Event::Applied(object))
    }
}

fn key<T: Watched>(seen: &Seen<T>) -> (String, String) {
    (seen.namespace().unwrap_or_default(), seen.name_any())
}

#[cfg(test)]
mod tests {
    use karpenter_core::api::{Node, Pod};
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    fn node(name: &str) -> Seen<Node> {
        let text = format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "1"}}}}"#);
        serde_json::from_str(&text).expect("a node")
    }

    fn broken(name: &str) -> Seen<Node> {
        let text = format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "2"}}, "spec": 7}}"#);
        serde_json::from_str(&text).expect("an object")
    }

    fn told(known: &mut Known, events: Vec<watcher::Event<Seen<Node>>>) -> Vec<String> {
        let news = events.into_iter().flat_map(|event| known.take(event));
        let text = |news| match news {
            News::Event(Event::Applied(object)) => format!("+{}", name(&object.reference())),
            News::Event(Event::Deleted(reference)) => format!("-{}", name(&reference)),
            News::Listed(kind) => kind.to_owned(),
            News::Unreadable { object, .. } => format!("?{object}"),
            other => panic!("{other:?}"),
        };
        news.map(text).collect()
    }

    fn name(reference: &ObjectRef) -> &str {
        let ObjectRef::Node(name) = reference else { panic!("{reference:?}") };
        name
    }

    #[test]
    fn what_went_while_nobody_watched_is_told_to_be_gone() {
        let mut known = Known::default();
        let first =
            vec![Init, InitApply(node("a")), InitApply(node("b")), InitDone, Apply(node("c")), Delete(node("b"))];
        assert_eq!(told(&mut known, first), ["+a", "+b", "Node", "+c", "-b"]);
        let again = vec![Init, InitApply(node("c")), InitApply(node("d")), InitDone];
        assert_eq!(told(&mut known, again), ["+c", "+d", "-a", "Node"]);
    }

    #[test]
    fn what_cannot_be_read_any_more_is_not_gone() {
        let mut known = Known::default();
        assert_eq!(told(&mut known, vec![Init, InitApply(node("a")), InitDone]), ["+a", "Node"]);
        let again = vec![Apply(broken("a")), Init, InitApply(broken("a")), InitApply(broken("b")), InitDone];
        assert_eq!(told(&mut known, again), ["?Node a", "?Node a", "?Node b", "Node"]);
        assert_eq!(told(&mut known, vec![Delete(broken("a")), Delete(broken("b"))]), ["-a"]);
    }

    #[test]
    fn a_pod_that_waits_and_cannot_be_read_is_told_with_its_uid() {
        let pod = |node: &str| -> Seen<Pod> {
            let text = format!(
                r#"{{"metadata": {{"namespace": "a", "name": "p", "uid": "u", "resourceVersion": "1"}},
                "spec": {{"nodeName": "{node}", "tolerations": 1}}}}"#
            );
            serde_json::from_str(&text).expect("an object")
        };
        for (node, expected) in [("", Some((ObjectKey::new("a", "p"), "u".to_owned()))), ("n", None)] {
            let news = Known::default().take(Apply(pod(node)));
            let News::Unreadable { waiting, .. } = &news[0] else { panic!("{news:?}") };
            assert_eq!(*waiting, expected, "{node}");
        }
    }
}
