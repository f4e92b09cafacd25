{{- define "karpenter.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The name of the release, with that of the chart unless it has it already. */}}
{{- define "karpenter.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $name = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* What goes under `metadata` of each object, beside its name. */}}
{{- define "karpenter.metadata" -}}
labels:
  {{- include "karpenter.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
  {{- with .Values.additionalLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "karpenter.serviceAccountName" -}}
{{- $default := .Values.serviceAccount.create | ternary (include "karpenter.fullname" .) "default" }}
{{- .Values.serviceAccount.name | default $default }}
{{- end }}

{{- /* Not empty if the controller gets to know what EC2 does not say of its types. */}}
{{- define "karpenter.hasInstanceFacts" -}}
{{- if and (eq .Values.provider "aws") .Values.settings.instanceFacts }}true{{ end }}
{{- end }}

{{- define "karpenter.instanceFactsName" -}}
{{- include "karpenter.fullname" . }}-instance-facts
{{- end }}

{{- define "karpenter.image" -}}
{{- with .Values.controller.image }}
{{- .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{- /* The affinity, whose pod terms are about the controller's own pods unless they say otherwise. */}}
{{- define "karpenter.affinity" -}}
{{- $own := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) }}
{{- $affinity := deepCopy .Values.affinity }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
  {{- $terms := get $affinity $kind | default dict }}
  {{- range $term := get $terms "requiredDuringSchedulingIgnoredDuringExecution" | default list }}
    {{- if not (hasKey $term "labelSelector") }}{{ $_ := set $term "labelSelector" $own }}{{ end }}
  {{- end }}
  {{- range get $terms "preferredDuringSchedulingIgnoredDuringExecution" | default list }}
    {{- if not (hasKey .podAffinityTerm "labelSelector") }}{{ $_ := set .podAffinityTerm "labelSelector" $own }}{{ end }}
  {{- end }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{- define "karpenter.topologySpreadConstraints" -}}
{{- $own := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) }}
{{- $constraints := deepCopy .Values.topologySpreadConstraints }}
{{- range $constraints }}
  {{- if not (hasKey . "labelSelector") }}{{ $_ := set . "labelSelector" $own }}{{ end }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}
