//! Signals: the first asks the server to stop, the second ends it.

use tokio::signal;

/// Completes at Ctrl-C or SIGTERM. From then on another of them ends the process at once.
pub(crate) async fn stop() {
    one().await;
    tracing::info!("stopping; a second signal ends at once");
    tokio::spawn(async {
        one().await;
        std::process::exit(130);
    });
}

async fn one() {
    let interrupt = async {
        if let Err(error) = signal::ctrl_c().await {
            tracing::warn!(%error, "Ctrl-C cannot be heard");
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match signal::unix::signal(signal::unix::SignalKind::terminate()) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be heard");
                std::future::pending::<()>().await;
            }
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
