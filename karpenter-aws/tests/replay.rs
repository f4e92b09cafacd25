//! The calls of the SDK against answers that were written down: pages, throttling, and answers that never come.

#![cfg(feature = "replay")]

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::config::{
    Credentials, SharedHttpClient,
    http::{HttpRequest, HttpResponse},
};
use aws_smithy_http_client::test_util::{NeverClient, ReplayEvent, StaticReplayClient};
use karpenter_aws::{
    ApiError, AwsApi,
    ec2::{
        fleet::{FleetRequest, TargetKind},
        instance::InstanceQuery,
        price::ProductFilter,
        shift::ZonalShift,
    },
    sdk::SdkAws,
};
use karpenter_core::{
    Timestamp,
    provider::{Measured, Measurement},
};
use tokio::time::Instant;

const THROTTLED: &str = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>too many</Message></Error></Errors>\
    <RequestID>r</RequestID></Response>";
const BROKEN: &str = "<Response><Errors><Error><Code>InternalError</Code><Message>broken</Message></Error></Errors>\
    <RequestID>r</RequestID></Response>";
const NOBODY: &str = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors>\
    <RequestID>r</RequestID></Response>";

/// AWS that gives these answers, one after the other, and what it was asked.
struct Replay {
    client: StaticReplayClient,
    api: SdkAws,
}

impl Replay {
    async fn of(answers: &[(u16, &str)]) -> Self {
        let answer = |(status, text): &(u16, &str)| {
            let status = (*status).try_into().expect("a status");
            ReplayEvent::new(HttpRequest::empty(), HttpResponse::new(status, (*text).to_owned().into()))
        };
        let client = StaticReplayClient::new(answers.iter().map(answer).collect());
        let api = SdkAws::new(&config(client.clone()).await);
        Self { client, api }
    }

    /// The bodies of all requests.
    fn asked(&self) -> Vec<String> {
        let bodies = self.client.actual_requests().map(|request| request.body().bytes().unwrap_or_default());
        bodies.map(|body| String::from_utf8_lossy(body).into_owned()).collect()
    }
}

async fn config(client: impl aws_sdk_ec2::config::HttpClient + 'static) -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .http_client(SharedHttpClient::new(client))
        .region(Region::new("us-west-2"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .load()
        .await
}

/// A field of a request in the form of the query protocol.
fn field<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    request.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn subnets(id: &str, next: &str) -> String {
    format!(
        "<DescribeSubnetsResponse><subnetSet><item><subnetId>{id}</subnetId></item></subnetSet>\
        <nextToken>{next}</nextToken></DescribeSubnetsResponse>"
    )
}

#[tokio::test]
async fn lists_of_ec2_are_read_to_their_last_page() {
    let pages = [subnets("subnet-1", "a"), subnets("subnet-2", "b"), subnets("subnet-3", "")];
    let replay = Replay::of(&pages.each_ref().map(|page| (200, page.as_str()))).await;
    let found = replay.api.describe_subnets(&[]).await.expect("answers");
    assert_eq!(found.iter().map(|subnet| subnet.id.as_str()).collect::<Vec<_>>(), ["subnet-1", "subnet-2", "subnet-3"]);
    let asked = replay.asked();
    assert_eq!(asked.iter().map(|body| field(body, "NextToken")).collect::<Vec<_>>(), [None, Some("a"), Some("b")]);
    assert!(asked.iter().all(|body| field(body, "MaxResults") == Some("500")), "{asked:?}");
}

#[tokio::test]
async fn machines_that_are_asked_for_by_id_are_asked_for_in_parts() {
    let page = |id: &str| {
        format!(
            "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>{id}</instanceId></item>\
            </instancesSet></item></reservationSet></DescribeInstancesResponse>"
        )
    };
    let (first, second) = (page("i-1"), page("i-2"));
    let replay = Replay::of(&[(200, &first), (200, &second)]).await;
    let ids = (0..501).map(|i| format!("i-{i}")).collect();
    let found = replay.api.describe_instances(&InstanceQuery { ids, filters: Vec::new() }).await.expect("answers");
    assert_eq!(found.iter().map(|machine| machine.id.as_str()).collect::<Vec<_>>(), ["i-1", "i-2"]);
    let asked = replay.asked();
    assert_eq!(field(&asked[1], "InstanceId.1"), Some("i-500"));
    assert!(asked.iter().all(|body| field(body, "MaxResults").is_none()), "ids and pages exclude each other");
}

#[tokio::test]
async fn lists_of_iam_and_of_prices_are_read_to_their_last_page() {
    let page = |name: &str, rest: &str| {
        format!(
            "<ListInstanceProfilesResponse><ListInstanceProfilesResult><InstanceProfiles><member><Path>/</Path>\
            <InstanceProfileName>{name}</InstanceProfileName><InstanceProfileId>x</InstanceProfileId><Arn>x</Arn>\
            <CreateDate>2026-01-01T00:00:00Z</CreateDate><Roles/></member></InstanceProfiles>{rest}\
            </ListInstanceProfilesResult></ListInstanceProfilesResponse>"
        )
    };
    let (first, second) = (page("a", "<IsTruncated>true</IsTruncated><Marker>m</Marker>"), page("b", ""));
    let replay = Replay::of(&[(200, &first), (200, &second)]).await;
    let found = replay.api.list_instance_profiles("/karpenter/").await.expect("answers");
    assert_eq!(found.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(field(&replay.asked()[1], "Marker"), Some("m"));

    let prices = [r#"{"PriceList": ["1"], "NextToken": "n"}"#, r#"{"PriceList": ["2", "3"]}"#];
    let replay = Replay::of(&prices.map(|page| (200, page))).await;
    let found = replay.api.get_products(&[ProductFilter::new("tenancy", "Shared")]).await.expect("answers");
    assert_eq!(found, ["1", "2", "3"]);
    assert!(replay.asked()[1].contains(r#""NextToken":"n""#));
}

#[tokio::test(start_paused = true)]
async fn who_is_throttled_waits_and_asks_again() {
    let page = subnets("subnet-1", "");
    let replay = Replay::of(&[(503, THROTTLED), (503, THROTTLED), (200, &page)]).await;
    let start = Instant::now();
    assert_eq!(replay.api.describe_subnets(&[]).await.expect("the third time").len(), 1);
    assert_eq!(replay.asked().len(), 3);
    assert!(start.elapsed() > Duration::ZERO, "it did not wait");
}

#[tokio::test(start_paused = true)]
async fn who_is_throttled_for_long_is_told_so() {
    let replay = Replay::of(&[(503, THROTTLED); 4]).await;
    let error = replay.api.describe_subnets(&[]).await.expect_err("throttled");
    assert_eq!(replay.asked().len(), 3);
    let ApiError::Refused { operation, code, status, .. } = &error else { panic!("{error}") };
    assert_eq!((operation.as_str(), code.as_str(), *status), ("DescribeSubnets", "RequestLimitExceeded", 503));
}

/// A series by its name and the values of its labels.
fn series<'m>(all: &'m [Measurement], name: &str, labels: &[&str]) -> Option<&'m Measured> {
    let is_meant = |one: &&Measurement| one.name == name && one.labels.iter().map(|(_, value)| value).eq(labels);
    all.iter().find(is_meant).map(|one| &one.value)
}

#[tokio::test(start_paused = true)]
async fn calls_and_attempts_are_counted_and_measured() {
    let page = subnets("subnet-1", "");
    let replay = Replay::of(&[(503, THROTTLED), (503, THROTTLED), (200, &page), (403, NOBODY)]).await;
    replay.api.describe_subnets(&[]).await.expect("the third time");
    replay.api.describe_subnets(&[]).await.expect_err("forbidden");
    let all = replay.api.measurements();
    let count = |name, status| series(&all, name, &["EC2", "DescribeSubnets", status]).cloned();
    let attempts = ["200", "403", "503"].map(|status| count("aws_sdk_rust_request_attempt_total", status));
    assert_eq!(attempts, [1, 1, 2].map(|times| Some(Measured::Count(times))));
    let calls = ["200", "403", "503"].map(|status| count("aws_sdk_rust_request_total", status));
    assert_eq!(calls, [Some(Measured::Count(1)), Some(Measured::Count(1)), None], "{all:#?}");

    let histogram = |name| match series(&all, name, &["EC2", "DescribeSubnets"]) {
        Some(Measured::Histogram(histogram)) => histogram.clone(),
        other => panic!("{name}: {other:?}"),
    };
    let retries = histogram("aws_sdk_rust_request_retry_count");
    assert_eq!((retries.count, retries.sum), (2, 2.0));
    let whole = histogram("aws_sdk_rust_request_duration_seconds");
    let parts = histogram("aws_sdk_rust_request_attempt_duration_seconds");
    assert_eq!((whole.count, parts.count), (2, 4));
    assert!(whole.sum > parts.sum, "the waits between attempts are in none of them");
}

#[tokio::test]
async fn shifts_of_people_and_of_aws_are_read_alike() {
    let answer = r#"{"appliedWeights": {}, "arcShiftConfigured": true, "arn": "a", "name": "n",
        "zonalShifts": [{"appliedStatus": "APPLIED", "awayFrom": "usw2-az1", "zonalShiftId": "s", "resourceIdentifier": "a", "comment": "", "startTime": 1700000000, "expiryTime": 1700003600},
            {"appliedStatus": "NOT_APPLIED", "awayFrom": "usw2-az2", "zonalShiftId": "t", "resourceIdentifier": "a",
            "comment": "", "startTime": 1700000000, "expiryTime": 1700003600}],
        "autoshifts": [{"appliedStatus": "APPLIED", "awayFrom": "usw2-az3", "startTime": 1700000000}]}"#;
    let replay = Replay::of(&[(200, answer)]).await;
    let found = replay.api.get_managed_resource("a").await.expect("an answer");
    let shift = |zone: &str, expiry, is_applied| ZonalShift { zone_id: zone.to_owned(), expiry, is_applied };
    let expiry = Some(Timestamp::from_millis(1_700_003_600_000));
    let expected = [shift("usw2-az1", expiry, true), shift("usw2-az2", expiry, false), shift("usw2-az3", None, true)];
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_asked_for_again_with_the_same_token() {
    let made = "<CreateFleetResponse><fleetId>fleet-1</fleetId></CreateFleetResponse>";
    let replay = Replay::of(&[(500, BROKEN), (200, made)]).await;
    let request = FleetRequest { client_token: "token".to_owned(), count: 1, ..FleetRequest::default() };
    replay.api.create_fleet(&request).await.expect("the second time");
    let asked = replay.asked();
    assert_eq!(asked.iter().map(|body| field(body, "ClientToken")).collect::<Vec<_>>(), [Some("token"), Some("token")]);
}

#[tokio::test]
async fn a_fleet_out_of_a_reservation_that_ec2_may_take_back_says_so() {
    let made = "<CreateFleetResponse><fleetId>fleet-1</fleetId></CreateFleetResponse>";
    let replay = Replay::of(&[(200, made), (200, made)]).await;
    let (word, option) = ("interruptible-capacity-reservation", "ReservedCapacityOptions.ReservationType.1");
    for (target, expected) in [(TargetKind::ReservedCapacity, Some(word)), (TargetKind::CapacityBlock, None)] {
        replay.api.create_fleet(&FleetRequest { target, count: 1, ..FleetRequest::default() }).await.expect("made");
        let asked = replay.asked();
        assert_eq!(field(asked.last().expect("asked"), option), expected, "{target:?}");
    }
}

#[tokio::test]
async fn what_is_forbidden_is_asked_for_once() {
    let replay = Replay::of(&[(403, NOBODY), (200, "")]).await;
    let error = replay.api.terminate_instances(&["i-1".to_owned()]).await.expect_err("forbidden");
    assert_eq!((error.code(), error.message()), ("UnauthorizedOperation", "no"));
    assert_eq!(replay.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_may_mean_that_it_was_done() {
    let replay = Replay::of(&[(200, "<CreateFleetResponse><fleet"), (200, "<"), (200, "<")]).await;
    let error = replay.api.create_fleet(&FleetRequest::default()).await.expect_err("no XML");
    assert!(matches!(error, ApiError::NoAnswer { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_answers_ends() {
    let client = NeverClient::new();
    let api = SdkAws::new(&config(client.clone()).await);
    let start = Instant::now();
    let error = api.describe_subnets(&[]).await.expect_err("nobody answers");
    assert!(matches!(error, ApiError::NoAnswer { .. }), "{error}");
    assert!(start.elapsed() <= Duration::from_secs(91), "{:?}", start.elapsed());
    assert!(client.num_calls() > 1, "it was not tried again");
    let error = api.receive_messages("http://queue").await.expect_err("nobody answers");
    assert!(matches!(error, ApiError::NoAnswer { .. }), "{error}");
}
