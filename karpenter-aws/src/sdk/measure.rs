//! How often AWS is called, and how long that takes.

use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{
            Intercept,
            context::{
                BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
                FinalizerInterceptorContextRef,
            },
        },
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use karpenter_core::provider::{Measurement, Meter};
use tokio::time::Instant;

const REQUESTS: &str = "aws_sdk_rust_request_total";
const REQUEST_SECONDS: &str = "aws_sdk_rust_request_duration_seconds";
const RETRIES: &str = "aws_sdk_rust_request_retry_count";
const ATTEMPTS: &str = "aws_sdk_rust_request_attempt_total";
const ATTEMPT_SECONDS: &str = "aws_sdk_rust_request_attempt_duration_seconds";

/// Bounds of times in seconds, up to the longest that a call may take.
const SECONDS: [f64; 14] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0];
/// Bounds of the attempts after the first.
const COUNTS: [f64; 4] = [0.0, 1.0, 2.0, 5.0];

/// Counts and measures the calls of all clients that it is given to.
#[derive(Clone, Debug, Default)]
pub(super) struct CallMeter(Arc<Mutex<Meter>>);

/// A call under way.
#[derive(Clone, Copy, Debug)]
struct Course {
    begun: Instant,
    attempt_begun: Instant,
    attempts: u32,
}

impl Storable for Course {
    type Storer = StoreReplace<Self>;
}

impl CallMeter {
    /// What was measured so far.
    pub(super) fn measurements(&self) -> Vec<Measurement> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).measurements()
    }

    fn with(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        bag: &ConfigBag,
        note: impl FnOnce(&mut Meter, &Answer),
    ) {
        let (Some(call), Some(course)) = (bag.load::<Metadata>(), bag.load::<Course>()) else { return };
        // Without an answer there is no status.
        let status = context.response().map(|response| response.status().as_u16().to_string()).unwrap_or_default();
        let labels = vec![("service", call.service().to_owned()), ("action", call.name().to_owned())];
        let answer = Answer { labels, status, course: *course };
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), &answer);
    }
}

/// What became of a call or an attempt.
struct Answer {
    labels: Vec<(&'static str, String)>,
    status: String,
    course: Course,
}

impl Answer {
    fn count(&self, meter: &mut Meter, name: &'static str) {
        let mut labels = self.labels.clone();
        labels.push(("status_code", self.status.clone()));
        meter.count(name, labels);
    }

    fn observe(&self, meter: &mut Meter, name: &'static str, bounds: &[f64], value: f64) {
        meter.observe(name, self.labels.clone(), bounds, value);
    }
}

impl Intercept for CallMeter {
    fn name(&self) -> &'static str {
        "CallMeter"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let now = Instant::now();
        bag.interceptor_state().store_put(Course { begun: now, attempt_begun: now, attempts: 0 });
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(course) = bag.load::<Course>().copied() {
            let next = Course { attempt_begun: Instant::now(), attempts: course.attempts + 1, ..course };
            bag.interceptor_state().store_put(next);
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.with(context, bag, |meter, answer| {
            answer.count(meter, ATTEMPTS);
            answer.observe(meter, ATTEMPT_SECONDS, &SECONDS, answer.course.attempt_begun.elapsed().as_secs_f64());
        });
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.with(context, bag, |meter, answer| {
            answer.count(meter, REQUESTS);
            answer.observe(meter, REQUEST_SECONDS, &SECONDS, answer.course.begun.elapsed().as_secs_f64());
            answer.observe(meter, RETRIES, &COUNTS, answer.course.attempts.saturating_sub(1).into());
        });
        Ok(())
    }
}
