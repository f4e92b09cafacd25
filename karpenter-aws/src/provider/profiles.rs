use karpenter_core::Timestamp;

use super::hash::fnv;
use crate::{
    api::{ApiError, AwsApi},
    ec2::{Tags, profile::InstanceProfile},
};

/// The path below which are all profiles of a cluster.
pub(crate) fn cluster_path(region: &str, cluster: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// The path below which are all profiles of a class.
pub(crate) fn class_path(region: &str, cluster: &str, class_uid: &str) -> String {
    format!("{}{class_uid}/", cluster_path(region, cluster))
}

/// The name of the profile of a class for a role. Another role has another profile: machines keep the one that they have.
pub(crate) fn profile_name(cluster: &str, region: &str, class: &str, class_uid: &str, role: &str) -> String {
    let hash = fnv([region, class, class_uid, role]);
    let cluster: String = cluster.chars().take(100).collect();
    format!("{cluster}_{hash}")
}

/// The name of a role without its path.
pub(crate) fn bare_role(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// Sees to it that there is a profile of this name with this role and no other.
///
/// A profile that gets no role stays for the next try, so that one that goes on failing makes and deletes nothing. It goes
/// with its class, or once nobody needs it.
pub(crate) async fn ensure(api: &dyn AwsApi, name: &str, path: &str, role: &str, tags: &Tags) -> Result<(), ApiError> {
    let role = bare_role(role);
    let found = match api.get_instance_profile(name).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => {
            match api.create_instance_profile(name, path, tags).await {
                Err(error) if !error.is_already_there() => return Err(error),
                _ => {}
            }
            return api.add_role_to_instance_profile(name, role).await;
        }
        Err(error) => return Err(error),
    };
    if found.roles.iter().any(|known| known == role) {
        return Ok(());
    }
    for other in &found.roles {
        api.remove_role_from_instance_profile(name, other).await?;
    }
    api.add_role_to_instance_profile(name, role).await
}

/// Deletes a profile and takes its role away first. One that is gone is no error.
pub(crate) async fn delete(api: &dyn AwsApi, profile: &InstanceProfile) -> Result<(), ApiError> {
    for role in &profile.roles {
        gone_is_fine(api.remove_role_from_instance_profile(&profile.name, role).await)?;
    }
    gone_is_fine(api.delete_instance_profile(&profile.name).await)
}

fn gone_is_fine(answer: Result<(), ApiError>) -> Result<(), ApiError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer,
    }
}

/// Whether a profile is so young that a status which does not name it yet may be on its way.
pub(crate) fn is_young(profile: &InstanceProfile, now: Timestamp) -> bool {
    /// As long as Karpenter's own.
    const PROTECTED_FOR: std::time::Duration = std::time::Duration::from_hours(1);
    profile.created.is_some_and(|created| now < created + PROTECTED_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::MemoryAws;

    #[tokio::test]
    async fn a_profile_has_the_role_that_is_wanted_and_no_other() {
        let aws = MemoryAws::small();
        aws.with(|state| state.roles.push("other".to_owned()));
        let ensure = |role: &'static str| {
            let aws = aws.clone();
            async move { ensure(&aws, "p", "/karpenter/r/c/u/", role, &Tags::new()).await }
        };
        ensure("path/node").await.expect("made");
        ensure("path/node").await.expect("there");
        assert_eq!((aws.count("CreateInstanceProfile"), aws.count("AddRoleToInstanceProfile")), (1, 1));
        ensure("other").await.expect("changed");
        assert_eq!(aws.with(|state| state.profiles[0].roles.clone()), ["other"]);
        let profile = aws.with(|state| state.profiles[0].clone());
        delete(&aws, &profile).await.expect("deleted");
        delete(&aws, &profile).await.expect("gone is fine");
        assert!(aws.with(|state| state.profiles.is_empty()));
    }

    #[tokio::test]
    async fn a_profile_waits_for_its_role() {
        let aws = MemoryAws::small();
        for _ in 0..2 {
            let error = ensure(&aws, "p", "/", "late", &Tags::new()).await.expect_err("no such role");
            assert!(error.is_not_found());
        }
        aws.with(|state| state.roles.push("late".to_owned()));
        ensure(&aws, "p", "/", "late", &Tags::new()).await.expect("made");
        assert_eq!(aws.with(|state| state.profiles[0].roles.clone()), ["late"]);
        assert_eq!((aws.count("CreateInstanceProfile"), aws.count("DeleteInstanceProfile")), (1, 0));
    }

    #[test]
    fn another_role_has_another_profile() {
        let name = |role| profile_name("c", "r", "class", "uid", role);
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
        assert!(profile_name(&"c".repeat(200), "r", "class", "uid", "a").len() <= 128);
    }
}
