use std::{borrow::Cow, io::BufRead, sync::Arc};

use karpenter_core::{
    Catalog, Timestamp,
    engine::{ActionResult, Engine, EngineOptions, Event},
};

use super::{Difference, Line, VERSION};
use crate::Error;

/// What was done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// How many events an engine was told.
    pub events: u64,
    /// How often it was asked what to do.
    pub ticks: u64,
    /// How many bytes the requests have that it gave.
    pub bytes: u64,
    /// How many engines there were.
    pub engines: u64,
    /// The time of the first event and the last.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// Tells a new engine what was recorded, and compares what it asks for, byte for byte. `file` is named in errors.
///
/// # Errors
/// The recording cannot be read, or the engine asks for something else: the first difference.
pub fn replay(recording: impl BufRead, file: &str) -> Result<Replayed, Error> {
    let mut player: Option<Player> = None;
    for (index, line) in recording.lines().enumerate() {
        let number = index + 1;
        let wrong = |message: String| Error::Recording { file: file.to_owned(), line: number, message };
        let line = line.map_err(|source| Error::Unreadable { file: file.to_owned(), source })?;
        let parsed: Line<'_> = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        match (&mut player, parsed) {
            (None, Line::Start { version: VERSION, options }) => player = Some(Player::new(*options)),
            (None, Line::Start { version, .. }) => {
                return Err(wrong(format!("it is of version {version}, and {VERSION} is read")));
            }
            (None, _) => return Err(wrong("the first line does not say how the engine was made".to_owned())),
            (Some(player), line) => player.take(line).map_err(|fault| match fault {
                Fault::Wrong(message) => wrong(message),
                Fault::Differs(difference) => Error::Differs { file: file.to_owned(), line: number, difference },
            })?,
        }
    }
    match player {
        Some(player) => Ok(player.done),
        None => Err(Error::Recording { file: file.to_owned(), line: 1, message: "it is empty".to_owned() }),
    }
}

struct Player {
    options: EngineOptions,
    engine: Engine,
    catalogs: Vec<Arc<Catalog>>,
    done: Replayed,
}

enum Fault {
    Wrong(String),
    Differs(Box<Difference>),
}

impl Player {
    fn new(options: EngineOptions) -> Self {
        let engine = Engine::new(options.clone());
        Self { options, engine, catalogs: Vec::new(), done: Replayed { engines: 1, ..Replayed::default() } }
    }

    fn take(&mut self, line: Line<'_>) -> Result<(), Fault> {
        match line {
            Line::Start { .. } => Err(Fault::Wrong("the recording starts a second time".to_owned())),
            Line::Catalog(catalog) => {
                self.catalogs.push(Arc::new(catalog.into_owned()));
                Ok(())
            }
            Line::Told { at, event } => {
                self.tell(event, at);
                Ok(())
            }
            Line::ToldCatalog { at, id, catalog } => {
                let catalog = self.catalogs.get(catalog);
                let catalog = catalog.ok_or_else(|| Fault::Wrong("it names a catalog that comes later".to_owned()))?;
                let result = ActionResult::Catalog(Ok(catalog.clone()));
                self.tell(Cow::Owned(Event::Done { id, result }), at);
                Ok(())
            }
            Line::Asked { at, requests } => {
                let asked = serde_json::to_string(&self.engine.tick(at)).map_err(|e| Fault::Wrong(e.to_string()))?;
                self.done.ticks += 1;
                self.done.bytes += asked.len() as u64;
                self.note_time(at);
                if asked == requests.get() {
                    return Ok(());
                }
                Err(Fault::Differs(Box::new(Difference::between(at, self.done.events, requests.get(), &asked))))
            }
            Line::Restarted {} => {
                self.engine = Engine::new(self.options.clone());
                self.done.engines += 1;
                Ok(())
            }
        }
    }

    fn tell(&mut self, event: Cow<'_, Event>, at: Timestamp) {
        self.engine.observe(event.into_owned(), at);
        self.done.events += 1;
        self.note_time(at);
    }

    fn note_time(&mut self, at: Timestamp) {
        let first = self.done.span.map_or(at, |(first, _)| first);
        self.done.span = Some((first, at));
    }
}
