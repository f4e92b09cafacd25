//! `karpenter explain --node-pool`: what pools can launch, and what rules out the other types.

use karpenter_core::disrupt::PoolOutlook;

use crate::{Error, args::ExplainArgs, consolidate::Prepared, load::LoadWarning, plan::Input};

/// Reads what the command line names, and looks at the pools, in the order in which they were asked for. What somebody should
/// look at in what was read comes second.
///
/// # Errors
/// A file that cannot be read or is not what it should be, or a pool that is not in the cluster or cannot be read.
pub fn run(args: &ExplainArgs) -> Result<(Vec<PoolOutlook>, Vec<String>), Error> {
    let now = args.disruption.now();
    let input = Input::read(&args.input)?;
    let unreadable = input.cluster.warnings.clone();
    let Prepared { snapshot, catalogs, warnings, .. } = Prepared::from_input(input, now)?;
    let mut names: Vec<&String> = Vec::new();
    for name in &args.node_pools {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let look =
        |name: &String| PoolOutlook::of(&snapshot, &catalogs, name, now).ok_or_else(|| unknown(name, &unreadable));
    Ok((names.into_iter().map(look).collect::<Result<_, _>>()?, warnings))
}

/// Why there is no answer for a pool: it cannot be read, or is not there.
fn unknown(pool: &str, warnings: &[LoadWarning]) -> Error {
    let object = format!("NodePool {pool}");
    let bad = warnings.iter().find_map(|warning| match warning {
        LoadWarning::BadPool { file, error } if error.object == object => {
            Some(Error::Object { file: file.clone(), error: error.clone() })
        }
        _ => None,
    });
    bad.unwrap_or_else(|| Error::UnknownPool { pool: pool.to_owned() })
}
