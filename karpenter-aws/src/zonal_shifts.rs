//! Zonal shifts of a cluster: the provider hears of them, and node pools say so.

use std::{collections::BTreeSet, fmt, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_core::api::NodePool;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::provider::{Ec2Provider, ShiftNews};

/// How often ARC is asked.
const PERIOD: Duration = Duration::from_secs(30);

/// Asks ARC for the zonal shifts of a cluster of EKS.
pub struct ZonalShifts {
    client: Client,
    recorder: Recorder,
    provider: Ec2Provider,
    arn: String,
    /// The ids of the zones of whose shift pools were told.
    told: BTreeSet<String>,
}

impl fmt::Debug for ZonalShifts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZonalShifts").field("arn", &self.arn).field("told", &self.told).finish_non_exhaustive()
    }
}

impl ZonalShifts {
    /// For a provider and the cluster of a client, which has this ARN.
    pub fn new(client: Client, provider: Ec2Provider, arn: impl Into<String>) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter { controller: "karpenter".to_owned(), instance: None });
        Self { client, recorder, provider, arn: arn.into(), told: BTreeSet::new() }
    }

    /// Works until it is dropped. All replicas ask; node pools are told only while `may_write` says so.
    pub async fn run(mut self, may_write: impl Fn() -> bool + Send) {
        let mut period = tokio::time::interval(PERIOD);
        loop {
            period.tick().await;
            if let Err(error) = self.provider.ask_for_shifts(&self.arn).await {
                tracing::warn!(error = %error, "ARC does not say whether there are zonal shifts: those that are known go on");
            }
            if may_write()
                && let Err(error) = self.tell().await
            {
                tracing::warn!(error, "node pools could not be told of zonal shifts");
            }
        }
    }

    /// Tells node pools of what has changed. What fails is tried again with the next period.
    async fn tell(&mut self) -> Result<(), String> {
        let shifted = self.provider.shifted_zone_ids();
        if shifted == self.told {
            return Ok(());
        }
        let pools = self.pools().await.map_err(|error| error.to_string())?;
        let news = self.provider.shift_news(&pools, &self.told, &shifted).await.map_err(|error| error.to_string())?;
        for one in &news {
            let Some(pool) = pools.iter().find(|pool| pool.name() == one.pool) else { continue };
            self.recorder.publish(&event(one), &reference(pool)).await.map_err(|error| error.to_string())?;
        }
        self.told = shifted;
        Ok(())
    }

    /// The node pools of the cluster; one that cannot be read is nobody's.
    async fn pools(&self) -> Result<Vec<NodePool>, kube::Error> {
        let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool");
        let pools: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodepools"));
        let all = pools.list(&ListParams::default()).await?;
        let read = |pool| serde_json::to_value(pool).and_then(serde_json::from_value).ok();
        Ok(all.items.iter().filter_map(read).collect())
    }
}

fn event(news: &ShiftNews) -> Event {
    Event {
        type_: if news.is_over { EventType::Normal } else { EventType::Warning },
        reason: news.reason().to_owned(),
        note: Some(news.message()),
        action: news.reason().to_owned(),
        secondary: None,
    }
}

fn reference(pool: &NodePool) -> ObjectReference {
    ObjectReference {
        api_version: Some("karpenter.sh/v1".to_owned()),
        kind: Some("NodePool".to_owned()),
        name: Some(pool.name().to_owned()),
        uid: Some(pool.metadata.uid.clone()),
        ..ObjectReference::default()
    }
}
