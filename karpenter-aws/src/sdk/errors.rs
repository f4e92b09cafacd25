use aws_sdk_ec2::{
    config::http::HttpResponse,
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
};

use crate::api::ApiError;

/// The error of a call that failed: refused if AWS said so.
pub(super) fn failed<E>(operation: &'static str) -> impl Fn(SdkError<E, HttpResponse>) -> ApiError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    move |error| match error {
        SdkError::ServiceError(context) => {
            let (said, status) = (context.err(), context.raw().status().as_u16());
            // Old services put a name space before the code, as in `com.amazonaws.x#NoSuchThing`.
            let code = said.code().unwrap_or("Unknown").rsplit('#').next().unwrap_or_default().to_owned();
            let message = said.message().unwrap_or_default().to_owned();
            ApiError::Refused { operation: operation.to_owned(), code, message, status }
        }
        SdkError::ConstructionFailure(context) => {
            ApiError::refused(operation, "InvalidRequest", format!("{context:?}"))
        }
        other => ApiError::no_answer(operation, DisplayErrorContext(&other).to_string()),
    }
}
