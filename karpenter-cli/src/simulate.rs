//! `karpenter simulate`: carries out a scenario in a simulated cluster.

use std::{
    fmt, fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use karpenter_core::{Catalog, Planner, Timestamp, disrupt::Disruptor};
use karpenter_fake::sim::{
    Exchange,
    scenario::{Asked, Failure, Manifest, Manifests, Play, Question, Scenario, Stage},
};

use crate::{
    Error,
    args::{OutputFormat, SimulateArgs},
    explain::Explanation,
    load::{self, TypeList},
    output,
    plan::{name_of, read_text},
    recording::Recorder,
    report,
};

/// What became of a scenario.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// Each command, what happened, and the account at the end.
    pub transcript: String,
    /// What did not come out.
    pub failures: Vec<Failure>,
}

impl Simulated {
    /// Whether all that the scenario expects was the case.
    ///
    /// # Errors
    /// [`Error::Unmet`] with all that was not.
    pub fn verdict(self) -> Result<(), Error> {
        if self.failures.is_empty() { Ok(()) } else { Err(Error::Unmet { failures: self.failures }) }
    }
}

/// Carries out the scenario that the command line names, with its recording and its report if they are asked for.
///
/// # Errors
/// A file that cannot be read or written, or a scenario that is not what it should be.
pub fn run(args: &SimulateArgs) -> Result<Simulated, Error> {
    set_threads(args.threads)?;
    let file = name_of(&args.file);
    let mut scenario = Scenario::parse(&read_text(&args.file)?, &file).map_err(Box::new)?;
    if let Some(seed) = args.seed {
        scenario.setup.seed = seed;
    }
    let mut shelf = Shelf { folder: args.file.parent().map(Path::to_owned).unwrap_or_default() };
    let mut play = Play::new(scenario.clone(), &mut shelf).map_err(Box::new)?;
    watched(&mut play, &mut shelf, args.record.as_deref())?;
    let mut transcript = play.transcript().to_owned();
    let kept = if args.compare {
        let mut kept = Play::new(scenario, &mut shelf).map_err(Box::new)?.without_consolidation();
        watched(&mut kept, &mut shelf, None)?;
        let bill = kept.live().world().bill();
        transcript += "  kept nodes   ";
        transcript += &bill.to_string();
        transcript += " if nodes were never consolidated\n";
        Some(kept)
    } else {
        None
    };
    if let Some(file) = &args.report {
        let page = report::page(&play, kept.as_ref());
        fs::write(file, page).map_err(|source| Error::NotWritten { file: name_of(file), source })?;
    }
    Ok(Simulated { transcript, failures: play.failures().to_vec() })
}

/// Searches on so many threads, which changes no plan.
///
/// # Errors
/// They cannot be had.
pub(crate) fn set_threads(threads: Option<usize>) -> Result<(), Error> {
    let Some(threads) = threads else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    pool.map_err(|error| Error::NoThreads { threads, message: error.to_string() })
}

/// Plays a scenario, records it if that is asked for, and says on a terminal how far it is.
fn watched(play: &mut Play, shelf: &mut Shelf, record: Option<&Path>) -> Result<(), Error> {
    let not_written = |source| Error::NotWritten { file: record.map(name_of).unwrap_or_default(), source };
    let options = &play.scenario().setup.options;
    let mut recorder = record.map(|folder| Recorder::create(folder, options)).transpose().map_err(not_written)?;
    let mut fault = None;
    let progress = Progress::new(play.scenario());
    play.run(shelf, &mut |at, exchange: Exchange<'_>| {
        progress.show(at);
        if let Some(recorder) = &mut recorder
            && fault.is_none()
        {
            fault = recorder.exchange(at, exchange).err();
        }
    });
    progress.bar.finish_and_clear();
    fault.map_or(Ok(()), Err).and_then(|()| recorder.map_or(Ok(()), Recorder::finish)).map_err(not_written)
}

/// How far a scenario is, in minutes of its own time.
struct Progress {
    bar: ProgressBar,
    start: Timestamp,
}

impl Progress {
    /// A bar that shows only on a terminal.
    fn new(scenario: &Scenario) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(minutes(scenario.duration()))
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} simulated minutes");
        Self { bar: if let Ok(style) = style { bar.with_style(style) } else { bar }, start: scenario.setup.start }
    }

    fn show(&self, at: Timestamp) {
        let passed = minutes(at.since(self.start));
        if passed != self.bar.position() {
            self.bar.set_position(passed);
        }
    }
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}

/// What is said of a file to whom knows the file.
fn without_file(message: &dyn fmt::Display, file: &str) -> String {
    let text = message.to_string();
    text.strip_prefix(&format!("{file}: ")).map(str::to_owned).unwrap_or(text)
}

/// Reads the files that a scenario names, and answers its questions.
struct Shelf {
    /// The folder of the scenario, from which files are named.
    folder: PathBuf,
}

impl Stage for Shelf {
    fn manifests(&mut self, manifests: &Manifests, scenario: &str) -> Result<Vec<Manifest>, String> {
        match manifests {
            Manifests::File(file) => {
                let file = self.folder.join(file);
                let name = name_of(&file);
                let read = read_text(&file).and_then(|text| load::manifests(&text, &name));
                read.map_err(|error| without_file(&error, &name))
            }
            Manifests::Inline(text) => load::manifests(text, scenario).map_err(|error| without_file(&error, scenario)),
            other => Err(format!("{other:?} cannot be read")),
        }
    }

    fn catalog(&mut self, file: &str) -> Result<Arc<Catalog>, String> {
        let file = self.folder.join(file);
        let name = name_of(&file);
        let list = read_text(&file).and_then(|text| load::catalog(&text, &name));
        let TypeList { types, warnings, .. } = list.map_err(|error| without_file(&error, &name))?;
        if let Some(warning) = warnings.first() {
            return Err(without_file(warning, &name));
        }
        Catalog::new(types).map(Arc::new).map_err(|error| error.to_string())
    }

    fn explain(&mut self, question: &Question<'_>) -> String {
        let answer = match question.subject {
            Asked::Pod(pod) => {
                let plan = Planner::new(question.options.planner.clone()).plan(question.snapshot, question.catalogs);
                let explanation = Explanation::of_pod(plan, question.catalogs.clone(), pod);
                output::render_explanation(&explanation, OutputFormat::Table)
            }
            Asked::Node(name) => {
                let disruptor = Disruptor::new(question.options.disruptor.clone());
                let search = disruptor.start(question.snapshot, question.catalogs, question.now);
                let outlooks: Vec<_> = search.outlook(name).into_iter().collect();
                output::render_outlooks(&outlooks, OutputFormat::Table)
            }
            _ => Ok(String::new()),
        };
        answer.unwrap_or_else(|error| error.to_string())
    }
}
