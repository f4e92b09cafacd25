//! What lies between a controller and the API server, to be cut.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Hands on what comes, as long as it is whole.
pub(crate) struct Wire {
    address: SocketAddr,
    is_cut: Arc<watch::Sender<bool>>,
}

impl Wire {
    pub(crate) async fn to(server: &str) -> Self {
        let target = server.strip_prefix("https://").expect("an API server").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("a port");
        let is_cut = Arc::new(watch::Sender::new(false));
        let state = Arc::clone(&is_cut);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, cut) = (target.clone(), state.subscribe());
                tokio::spawn(hand_on(near, target, cut));
            }
        });
        Self { address, is_cut }
    }

    pub(crate) fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Nothing gets through for so long, and what was open is closed.
    pub(crate) async fn cut_for(&self, time: Duration) {
        self.is_cut.send_replace(true);
        tokio::time::sleep(time).await;
        self.is_cut.send_replace(false);
    }
}

async fn hand_on(mut near: TcpStream, target: String, mut cut: watch::Receiver<bool>) {
    if *cut.borrow_and_update() {
        return;
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = cut.changed() => {}
    }
}
