use super::Bootstrap;

impl Bootstrap<'_> {
    /// Windows: what the user wrote, then the start of the kubelet.
    pub(super) fn windows(&self) -> String {
        let cluster = self.cluster;
        let quoted = |name: &str, value: &str| format!("-{name} '{value}'");
        let mut call = vec![
            "& $EKSBootstrapScriptFile".to_owned(),
            quoted("EKSClusterName", &cluster.name),
            quoted("APIServerEndpoint", &cluster.endpoint),
        ];
        call.extend(cluster.ca_bundle.as_deref().map(|ca_bundle| quoted("Base64ClusterCA", ca_bundle)));
        call.push(quoted("KubeletExtraArgs", &self.kubelet_args()));
        call.extend(self.settings.cluster_dns.first().map(|ip| quoted("DNSClusterIP", ip)));
        let call = call.join(" ");
        let script = r#"[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#;
        let lines = [Some("<powershell>"), self.custom, Some(script), Some(&call), Some("</powershell>")];
        lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}
