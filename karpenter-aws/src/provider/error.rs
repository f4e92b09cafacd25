//! What AWS means when it refuses.

use std::fmt;

use karpenter_core::provider::{ProviderError, ProviderErrorKind};

use crate::{api::ApiError, ec2::fleet::FleetError};

/// The name of the provider.
pub(crate) const NAME: &str = "aws";

/// Codes of fleets that mean: not this one, not now.
const CAPACITY_CODES: [&str; 8] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];
/// Codes of what is not there.
const NOT_FOUND_CODES: [&str; 9] = [
    "InvalidCapacityReservationId.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateId.NotFoundException",
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchEntity",
    "ParameterNotFound",
];
const THROTTLING_CODES: [&str; 6] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "TooManyRequestsException",
    "SlowDown",
];
const UNAUTHORIZED_CODES: [&str; 8] = [
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "OptInRequired",
];

/// Why machines could not be bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LaunchFailure {
    /// The role that EC2 needs for spot machines is not there and may not be made.
    SpotSlrCreationFailed,
    /// The credentials do not allow it.
    Unauthorized,
    /// The image may not be used by this account.
    AmiAuthorizationFailure,
    /// Security group and subnet are of different networks.
    SecurityGroupSubnetVpcMismatch,
    /// The instance profile has no valid name, or is not there.
    InstanceProfileNameInvalid,
    /// The launch template is gone.
    LaunchTemplateNotFound,
    /// The user data is larger than 16 KB.
    UserDataSizeLimitExceeded,
    /// The id of the image is none.
    InvalidAmiId,
    /// There is no such image.
    AmiNotFound,
    /// Too many calls.
    RequestLimitExceeded,
    /// AWS failed.
    InternalError,
    /// The account may not buy this type.
    FreeTierIneligible,
    /// Too many fleets.
    FleetQuotaExceeded,
    /// AWS looks at the account first.
    AccountPendingVerification,
    /// Too many spot machines.
    SpotQuotaExceeded,
    /// Too many processors.
    VcpuLimitExceeded,
    /// The subnet is full.
    InsufficientFreeAddressesInSubnet,
    /// Anything else.
    LaunchFailed,
}

/// What a text of AWS says if it contains one of these; the first that does counts.
const WORDS: [(LaunchFailure, &[&str]); 17] = [
    (LaunchFailure::SpotSlrCreationFailed, &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"]),
    (
        LaunchFailure::AmiAuthorizationFailure,
        &["Not authorized for images", "not authorized to use the image", "not authorized for image"],
    ),
    (
        LaunchFailure::Unauthorized,
        &[
            "UnauthorizedOperation",
            "AccessDenied",
            "is not authorized to perform",
            "not authorized to perform this operation",
            "explicit deny in a service control policy",
            "no identity-based policy allows",
            "no permissions boundary allows",
        ],
    ),
    (
        LaunchFailure::SecurityGroupSubnetVpcMismatch,
        &["Security group and subnet belong to different networks", "are not in the same VPC", "InvalidGroup.NotFound"],
    ),
    (
        LaunchFailure::InstanceProfileNameInvalid,
        &["Invalid IAM Instance Profile name", "iamInstanceProfile.name is invalid"],
    ),
    (
        LaunchFailure::LaunchTemplateNotFound,
        &["InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"],
    ),
    (LaunchFailure::UserDataSizeLimitExceeded, &["User data is limited to 16384 bytes", "InvalidUserData"]),
    (LaunchFailure::InvalidAmiId, &["InvalidAMIID.Malformed", "Invalid id: \"ami"]),
    (LaunchFailure::AmiNotFound, &["InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"]),
    (LaunchFailure::RequestLimitExceeded, &["RequestLimitExceeded", "Request limit exceeded"]),
    (LaunchFailure::InternalError, &["InternalError", "InternalFailure"]),
    (LaunchFailure::FreeTierIneligible, &["not eligible for Free Tier"]),
    (LaunchFailure::FleetQuotaExceeded, &["MaxFleetCountExceeded"]),
    (LaunchFailure::AccountPendingVerification, &["PendingVerification"]),
    (LaunchFailure::SpotQuotaExceeded, &["MaxSpotInstanceCountExceeded"]),
    (LaunchFailure::VcpuLimitExceeded, &["VcpuLimitExceeded"]),
    (LaunchFailure::InsufficientFreeAddressesInSubnet, &["InsufficientFreeAddressesInSubnet"]),
];

impl LaunchFailure {
    /// What a code and words of AWS mean.
    pub fn of(code: &str, message: &str) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| code.contains(word) || message.contains(word));
        WORDS.iter().find(|(_, words)| says(words)).map_or(Self::LaunchFailed, |(failure, _)| *failure)
    }

    /// The name of the reason, as Karpenter writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotSlrCreationFailed => "SpotSLRCreationFailed",
            Self::Unauthorized => "Unauthorized",
            Self::AmiAuthorizationFailure => "AMIAuthorizationFailure",
            Self::SecurityGroupSubnetVpcMismatch => "SecurityGroupSubnetVPCMismatch",
            Self::InstanceProfileNameInvalid => "InstanceProfileNameInvalid",
            Self::LaunchTemplateNotFound => "LaunchTemplateNotFound",
            Self::UserDataSizeLimitExceeded => "UserDataSizeLimitExceeded",
            Self::InvalidAmiId => "InvalidAMIID",
            Self::AmiNotFound => "AMINotFound",
            Self::RequestLimitExceeded => "RequestLimitExceeded",
            Self::InternalError => "InternalError",
            Self::FreeTierIneligible => "FreeTierIneligible",
            Self::FleetQuotaExceeded => "FleetQuotaExceeded",
            Self::AccountPendingVerification => "AccountPendingVerification",
            Self::SpotQuotaExceeded => "SpotQuotaExceeded",
            Self::VcpuLimitExceeded => "VCPULimitExceeded",
            Self::InsufficientFreeAddressesInSubnet => "InsufficientFreeAddressesInSubnet",
            Self::LaunchFailed => "LaunchFailed",
        }
    }

    const fn kind(self) -> ProviderErrorKind {
        match self {
            Self::SpotSlrCreationFailed | Self::Unauthorized | Self::AmiAuthorizationFailure => {
                ProviderErrorKind::Unauthorized
            }
            Self::RequestLimitExceeded => ProviderErrorKind::Throttled,
            Self::InternalError => ProviderErrorKind::Unavailable,
            _ => ProviderErrorKind::Other,
        }
    }

    /// The error of a launch that failed so.
    pub(crate) fn to_error(self, message: impl fmt::Display) -> ProviderError {
        ProviderError::new(NAME, "create", self.kind(), format!("{}: {message}", self.as_str()))
    }

    /// The error of a launch in which a call failed.
    pub(crate) fn told(error: &ApiError) -> ProviderError {
        let mut out = Self::of(error.code(), error.message()).to_error(error);
        if out.kind == ProviderErrorKind::Other {
            out.kind = error.kind();
        }
        out
    }
}

impl fmt::Display for LaunchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FleetError {
    /// Whether other offerings, or the same one later, may do.
    pub fn is_capacity(&self) -> bool {
        CAPACITY_CODES.contains(&self.code.as_str()) || self.is_spread_limit()
    }

    /// Whether the spread placement group has as many machines in the zone as it may have.
    pub fn is_spread_limit(&self) -> bool {
        self.message.contains("limit of instances in this spread placement group")
    }

    /// Whether the subnet is full.
    pub fn is_full_subnet(&self) -> bool {
        self.code == "InsufficientFreeAddressesInSubnet"
    }

    /// What it means.
    pub fn failure(&self) -> LaunchFailure {
        LaunchFailure::of(&self.code, &self.message)
    }
}

impl ApiError {
    /// Whether what was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        NOT_FOUND_CODES.contains(&self.code())
    }

    /// Whether what was to be made is there already.
    pub fn is_already_there(&self) -> bool {
        self.code() == "EntityAlreadyExists" || self.code().contains("AlreadyExists")
    }

    /// Whether a launch template is gone.
    pub fn is_template_gone(&self) -> bool {
        self.code().starts_with("InvalidLaunchTemplate") && self.is_not_found()
    }

    /// Whether it may have been done all the same: no answer came, or AWS failed on the way.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::Refused { status: 500.., .. })
    }

    /// How the engine should react.
    pub fn kind(&self) -> ProviderErrorKind {
        let Self::Refused { code, status, .. } = self else { return ProviderErrorKind::Unavailable };
        let is = |codes: &[&str]| codes.contains(&code.as_str());
        match status {
            _ if is(&THROTTLING_CODES) => ProviderErrorKind::Throttled,
            429 => ProviderErrorKind::Throttled,
            _ if is(&UNAUTHORIZED_CODES) => ProviderErrorKind::Unauthorized,
            500.. => ProviderErrorKind::Unavailable,
            _ => ProviderErrorKind::Other,
        }
    }

    /// The error of an operation of the provider that failed so.
    pub(crate) fn to_error(&self, operation: &'static str) -> ProviderError {
        ProviderError::new(NAME, operation, self.kind(), self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_that_match_count() {
        for (code, message, expected) in [
            ("UnfulfillableCapacity", "", LaunchFailure::LaunchFailed),
            (
                "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
                "not authorized",
                LaunchFailure::SpotSlrCreationFailed,
            ),
            ("UnauthorizedOperation", "no identity-based policy allows", LaunchFailure::Unauthorized),
            ("UnauthorizedOperation", "Not authorized for images: [ami-1]", LaunchFailure::AmiAuthorizationFailure),
            ("InvalidAMIID.NotFound", "does not exist", LaunchFailure::AmiNotFound),
            ("VcpuLimitExceeded", "", LaunchFailure::VcpuLimitExceeded),
        ] {
            assert_eq!(LaunchFailure::of(code, message), expected, "{code}");
        }
    }

    #[test]
    fn kinds_of_refusals() {
        let kind = |code: &str| ApiError::refused("x", code, "").kind();
        assert_eq!(kind("RequestLimitExceeded"), ProviderErrorKind::Throttled);
        assert_eq!(kind("AccessDenied"), ProviderErrorKind::Unauthorized);
        assert_eq!(kind("InvalidParameterValue"), ProviderErrorKind::Other);
        assert_eq!(ApiError::no_answer("x", "reset").kind(), ProviderErrorKind::Unavailable);
        let failed = ApiError::Refused { operation: "x".into(), code: "X".into(), message: String::new(), status: 503 };
        assert_eq!(failed.kind(), ProviderErrorKind::Unavailable);
    }

    #[test]
    fn codes_that_mean_not_there_are_known() {
        for code in [
            "InvalidInstanceID.NotFound",
            "InvalidCapacityReservationId.NotFound",
            "QueueDoesNotExist",
            "NoSuchEntity",
            "ParameterNotFound",
        ] {
            assert!(ApiError::refused("x", code, "").is_not_found(), "{code}");
        }
        let gone = ApiError::refused("x", "InvalidLaunchTemplateName.NotFoundException", "");
        assert!(gone.is_not_found() && gone.is_template_gone());
        assert!(ApiError::refused("x", "EntityAlreadyExists", "").is_already_there());
        assert!(!ApiError::refused("x", "UnauthorizedOperation", "").is_not_found());
    }

    #[test]
    fn a_spread_group_that_is_full_lacks_capacity() {
        let message = "You have reached the limit of instances in this spread placement group".to_owned();
        let error = FleetError { code: "InvalidRequest".to_owned(), message, ..FleetError::default() };
        assert!(error.is_capacity() && error.is_spread_limit());
        assert!(!FleetError { code: "InvalidRequest".to_owned(), ..FleetError::default() }.is_capacity());
    }
}
