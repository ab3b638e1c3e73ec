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

{{/* The same, and others, which win over all: (dict "top" $ "more" …). Templates add the component after them. */}}
{{- define "redlock-operator.labelsAnd" -}}
{{- $labels := omit .top.Values.commonLabels "app.kubernetes.io/component" -}}
{{- $_ := set $labels "app.kubernetes.io/name" .top.Chart.Name -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .top.Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/version" .top.Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .top.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .top.Chart.Name .top.Chart.Version | replace "+" "_") -}}
{{- mergeOverwrite $labels .more | toYaml -}}
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
