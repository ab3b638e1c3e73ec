{{/* The name of everything in the namespace of the release. */}}
{{- define "redlock-operator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of what belongs to no namespace: releases in two namespaces must not share it. */}}
{{- define "redlock-operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "redlock-operator.fullname" .) -}}
{{- end -}}

{{- define "redlock-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "redlock-operator.fullname" .) -}}
{{- end -}}

{{- define "redlock-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "redlock-operator.labels" -}}
{{ include "redlock-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}
