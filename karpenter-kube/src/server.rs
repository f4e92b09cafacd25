//! `/metrics`, `/healthz` and `/readyz`.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, http::header, response::IntoResponse, routing::get};
use tokio::net::TcpListener;

use crate::metrics::{Metrics, Probes};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers `/metrics` until the process ends.
///
/// # Errors
/// Those of the listener.
pub async fn serve_metrics(listener: TcpListener, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let answer =
        |State(metrics): State<Arc<Metrics>>| async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.encode()) };
    axum::serve(listener, Router::new().route("/metrics", get(answer)).with_state(metrics)).await
}

/// Answers `/healthz` and `/readyz` until the process ends: 200, or 503 for no.
///
/// # Errors
/// Those of the listener.
pub async fn serve_probes(listener: TcpListener, probes: Arc<Probes>) -> std::io::Result<()> {
    let health = |State(probes): State<Arc<Probes>>| async move { answer(probes.is_alive()) };
    let ready = |State(probes): State<Arc<Probes>>| async move { answer(probes.is_ready()) };
    let routes = Router::new().route("/healthz", get(health)).route("/readyz", get(ready));
    axum::serve(listener, routes.with_state(probes)).await
}

fn answer(is_so: bool) -> impl IntoResponse {
    if is_so { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "no\n") }
}
