{{/* The name of everything in a namespace. */}}
{{- define "redlock-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else if hasPrefix (printf "%s-" .Release.Name) .Chart.Name -}}
{{- .Chart.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of objects without a namespace, or in a namespace of another owner: releases in two namespaces must not share it. */}}
{{- define "redlock-operator.clusterScopedName" -}}
{{- printf "%s:%s" .Release.Namespace (include "redlock-operator.fullname" .) -}}
{{- end -}}

{{/* The release as the Leases that it holds name it. The names of namespaces have no dot. */}}
{{- define "redlock-operator.releaseName" -}}
{{- printf "%s.%s" .Release.Namespace (include "redlock-operator.fullname" .) -}}
{{- end -}}

{{- define "redlock-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "redlock-operator.fullname" .) -}}
{{- end -}}

{{/* Of the operator's pods. */}}
{{- define "redlock-operator.selectorLabels" -}}
{{- include "redlock-operator.componentLabels" (dict "top" . "component" "operator") -}}
{{- end -}}

{{/* Of all objects. */}}
{{- define "redlock-operator.labels" -}}
{{- include "redlock-operator.labelsAnd" (dict "top" . "more" dict) -}}
{{- end -}}

{{/* The same, and others, which win over the common ones: (dict "top" $ "more" …) */}}
{{- define "redlock-operator.labelsAnd" -}}
app.kubernetes.io/name: {{ .top.Chart.Name }}
app.kubernetes.io/instance: {{ .top.Release.Name }}
app.kubernetes.io/version: {{ .top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .top.Chart.Name .top.Chart.Version | replace "+" "_" }}
{{- $taken := list "helm.sh/chart" -}}
{{- range list "name" "instance" "version" "managed-by" "component" -}}
{{- $taken = append $taken (printf "app.kubernetes.io/%s" .) -}}
{{- end -}}
{{- range $name, $value := merge (deepCopy .more) .top.Values.commonLabels -}}
{{- if not (has $name $taken) }}
{{ $name | quote }}: {{ $value | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The image of the program. */}}
{{- define "redlock-operator.image" -}}
{{- include "redlock-operator.imageName" (dict "top" . "image" .Values.image) -}}
{{- end -}}

{{/* The first part of a repository is a registry where it has a dot or a port: (dict "top" $ "image" …) */}}
{{- define "redlock-operator.imageName" -}}
{{- $name := .image.repository -}}
{{- with .top.Values.global.imageRegistry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $name "") -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .top.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Labels as a selector, name=value,… */}}
{{- define "redlock-operator.selector" -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}
