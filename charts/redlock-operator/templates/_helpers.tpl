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

{{/* Of the operator's pods. Frozen: the selector of a Deployment can never change. */}}
{{- define "redlock-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "redlock-operator.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
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

{{- define "redlock-operator.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.image.pullSecrets .Values.global.imagePullSecrets -}}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- with $secrets | uniq -}}
imagePullSecrets:
{{ toYaml . | indent 2 }}
{{- end -}}
{{- end -}}

{{/* What the Pod Security Standard "restricted" asks for, and a user of no other image. */}}
{{- define "redlock-operator.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "redlock-operator.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Labels as a selector, name=value,… */}}
{{- define "redlock-operator.selector" -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}
