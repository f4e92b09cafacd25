//! What an engine was told and what it asked for, on a disk, so that its decisions can be looked at and made again.
//!
//! A recording is a folder with a file of JSON lines: what the engine was made with, then what it was told and what it
//! asked for, each with its time. Catalogs are large and seldom change, so that each is written once and named by its
//! number.

mod difference;
mod reader;
mod writer;

pub use difference::Difference;
pub use reader::{Replayed, replay};
pub use writer::Recorder;

use std::borrow::Cow;

use karpenter_core::{
    Catalog, Timestamp,
    engine::{ActionId, EngineOptions, Event},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The file in the folder of a recording.
pub const FILE: &str = "recording.jsonl";
/// What recordings look like; others are not read.
const VERSION: u32 = 1;

/// A line of a recording, `'l` for as long as the line lives.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Line<'l> {
    /// The first line.
    Start { version: u32, options: Box<EngineOptions> },
    /// What can be bought, from here on named by how many catalogs were before it.
    Catalog(Cow<'l, Catalog>),
    /// The engine was told this.
    Told { at: Timestamp, event: Cow<'l, Event> },
    /// The engine was told this catalog.
    ToldCatalog { at: Timestamp, id: ActionId, catalog: usize },
    /// The engine asked for this.
    Asked {
        at: Timestamp,
        #[serde(borrow)]
        requests: &'l RawValue,
    },
    /// From here on it is another engine, which knows nothing yet.
    Restarted {},
}
