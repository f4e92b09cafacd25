//! `karpenter explain --node`: what keeps single nodes, and what becomes of their pods if one of them goes.

use karpenter_core::disrupt::{Disruptor, NodeOutlook};

use crate::{Error, args::ExplainArgs, consolidate::Prepared};

/// Reads what the command line names, and looks at the nodes, in the order in which they were asked for. What somebody should
/// look at in what was read comes second.
///
/// # Errors
/// A file that cannot be read or is not what it should be, or a node that is not in the cluster.
pub fn run(args: &ExplainArgs) -> Result<(Vec<NodeOutlook>, Vec<String>), Error> {
    let Prepared { snapshot, catalogs, mut warnings, .. } = Prepared::read(&args.input, args.disruption.now())?;
    let mut names: Vec<&String> = Vec::new();
    for name in &args.nodes {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let unknown = names.iter().find(|name| !snapshot.places().iter().any(|place| place.name == ***name));
    if let Some(&node) = unknown {
        return Err(Error::UnknownNode { node: node.clone() });
    }
    let disruptor = Disruptor::new(args.disruption.options(&args.policies));
    let search = disruptor.start(&snapshot, &catalogs, args.disruption.now());
    warnings.extend(search.warnings().iter().map(ToString::to_string));
    Ok((names.into_iter().filter_map(|name| search.outlook(name)).collect(), warnings))
}
