use std::{
    borrow::Cow,
    fs,
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

use karpenter_core::{
    Catalog, Timestamp,
    engine::{ActionResult, EngineOptions, Event, Request},
};
use karpenter_fake::sim::Exchange;

use super::{FILE, Line, VERSION};

/// Writes a recording.
///
/// ```
/// use karpenter_cli::recording::Recorder;
/// use karpenter_core::{Timestamp, engine::{EngineOptions, Event}};
///
/// let mut out = Vec::new();
/// let mut recorder = Recorder::new(&mut out, &EngineOptions::default())?;
/// recorder.told(Timestamp::from_millis(0), &Event::Synced)?;
/// recorder.finish()?;
/// assert_eq!(String::from_utf8(out)?.lines().nth(1), Some(r#"{"told":{"at":"1970-01-01T00:00:00Z","event":"Synced"}}"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder<W: Write> {
    out: W,
    catalogs: usize,
    /// The catalog that was written last, with its text.
    last: Option<(Arc<Catalog>, String)>,
}

impl Recorder<BufWriter<fs::File>> {
    /// A recording in this folder, in the place of the one that is there.
    ///
    /// # Errors
    /// The folder or the file cannot be made.
    pub fn create(folder: &Path, options: &EngineOptions) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Self::new(BufWriter::new(fs::File::create(folder.join(FILE))?), options)
    }
}

impl<W: Write> Recorder<W> {
    /// A recording of an engine with these options.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(out: W, options: &EngineOptions) -> io::Result<Self> {
        let mut recorder = Self { out, catalogs: 0, last: None };
        recorder.line(&Line::Start { version: VERSION, options: Box::new(options.clone()) })?;
        Ok(recorder)
    }

    /// The engine is told something.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn told(&mut self, at: Timestamp, event: &Event) -> io::Result<()> {
        if let Event::Done { id, result: ActionResult::Catalog(Ok(catalog)) } = event {
            let catalog = self.catalog(catalog)?;
            return self.line(&Line::ToldCatalog { at, id: *id, catalog });
        }
        self.line(&Line::Told { at, event: Cow::Borrowed(event) })
    }

    /// The engine has been asked what to do, and asks for this.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn asked(&mut self, at: Timestamp, requests: &[Request]) -> io::Result<()> {
        let requests = serde_json::value::to_raw_value(requests)?;
        self.line(&Line::Asked { at, requests: &requests })
    }

    /// From here on it is another engine.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn restarted(&mut self) -> io::Result<()> {
        self.line(&Line::Restarted {})
    }

    /// What passes between a simulated world and its engine.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn exchange(&mut self, at: Timestamp, exchange: Exchange<'_>) -> io::Result<()> {
        match exchange {
            Exchange::Told(event) => self.told(at, event),
            Exchange::Asked(requests) => self.asked(at, requests),
            Exchange::Restarted => self.restarted(),
            other => Err(io::Error::other(format!("{other:?} cannot be recorded"))),
        }
    }

    /// Makes sure that all was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The number of a catalog, which is written if it is another than the last one.
    fn catalog(&mut self, catalog: &Arc<Catalog>) -> io::Result<usize> {
        if self.last.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, catalog)) {
            return Ok(self.catalogs - 1);
        }
        let text = serde_json::to_string(&Line::Catalog(Cow::Borrowed(catalog)))?;
        if self.last.as_ref().is_none_or(|(_, last)| *last != text) {
            writeln!(self.out, "{text}")?;
            self.catalogs += 1;
        }
        self.last = Some((catalog.clone(), text));
        Ok(self.catalogs - 1)
    }

    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}
