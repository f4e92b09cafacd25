//! What comes out, held to the rules of its kinds.

use super::Converter;
use crate::nodeclass::KIND;

/// Reasons of refusals for which a rule of the API server is broken too.
const SAID_BY_RULES: [&str; 2] = ["TagValidationFailed", "UnsupportedAlias"];

impl Converter {
    /// Notes what an API server would not accept, and what no nodes would be made of.
    pub(super) fn check(&mut self) {
        let mut found = Vec::new();
        for class in self.classes.iter().map(|class| &class.now) {
            let object = format!("{KIND} {}", class.name());
            let rules = class.validate().err().into_iter().flatten().map(|error| error.to_string());
            // Whether expressions are evaluated is a setting of the controller.
            let refusal = class.refusal(true).filter(|refusal| !SAID_BY_RULES.contains(&refusal.reason));
            found.extend(rules.chain(refusal.map(|refusal| refusal.message)).map(|message| (object.clone(), message)));
        }
        for pool in self.pools.iter().map(|pool| &pool.now) {
            let broken = pool.validate().err();
            found.extend(broken.map(|error| (format!("NodePool {}", pool.name()), error.to_string())));
        }
        for (object, message) in found {
            self.note(&object, format!("cannot be used as it comes out: {message}"));
        }
    }
}
